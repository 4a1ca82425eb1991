"""Dataclasses from parsed JSON, every value checked against its type hint."""

import functools
from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from iaa.errors import unknown

_TYPE_NAMES = {int: "whole number", float: "number", bool: "true or false", str: "text", type(None): "null"}


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def build(kind: type[Any], content: object, where: str) -> Any:
    """An instance of a dataclass; errors name the field that is unknown or has the wrong type."""
    if not isinstance(content, dict):
        raise ValueError(f"{where} must hold an object, got {content!r}")
    known = {entry.name for entry in fields(kind)}
    for name in content:
        if name not in known:
            raise unknown(f"a field of {where}", name, sorted(known))
    hints = _hints(cast(Hashable, kind))
    values = {}
    for name, value in content.items():
        hint = hints[name]
        if is_dataclass(hint):
            values[name] = build(hint, value, f"{name} in {where}")  # type: ignore[arg-type]
        elif get_origin(hint) is Literal and value not in get_args(hint):
            raise unknown(f"{name} in {where}", value, get_args(hint))
        elif not _fits(value, hint):
            raise ValueError(f"{name} in {where} must be {_describe(hint)}, got {value!r}")
        else:
            values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def check_choices(instance: Any, prefix: str = "") -> None:
    """Refuse values that the type hints of a dataclass, or of those inside it, do not name."""
    for name, hint in _hints(cast(Hashable, type(instance))).items():
        value = getattr(instance, name)
        if is_dataclass(value):
            check_choices(value, f"{prefix}{name}.")
        elif get_origin(hint) is Literal and value not in get_args(hint):
            raise unknown(prefix + name, value, get_args(hint))


def _fits(value: object, hint: Any) -> bool:
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Literal:
        return value in inner
    if kind is UnionType:
        return any(_fits(value, option) for option in inner)
    if kind is tuple:
        return isinstance(value, list) and all(_fits(item, inner[0]) for item in value)
    if kind is dict:
        return isinstance(value, dict) and all(_fits(item, inner[1]) for item in value.values())
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint  # not isinstance: True would pass as an int


def _describe(hint: Any) -> str:
    kind, inner = get_origin(hint), get_args(hint)
    if kind is UnionType:
        return " or ".join(_describe(option) for option in inner)
    if kind is tuple:
        return f"a list of {_TYPE_NAMES[inner[0]]}s"
    if kind is dict:
        return f"an object whose values are each {_describe(inner[1])}"
    return f"a {_TYPE_NAMES[hint]}" if hint in (int, float) else _TYPE_NAMES[hint]
