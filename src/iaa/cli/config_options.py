"""Fields of the configuration as options of train, compare and ablate, with hints for common mistakes."""

import dataclasses
import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import tyro

from iaa.config import Config
from iaa.presets import presets_help, start

Parsed = TypeVar("Parsed")
PREFIXES = ("folder:", "table:", "embeddings:")
SUFFIXES = {
    "table:": (".csv", ".parquet", ".json", ".jsonl"),
    "embeddings:": (".safetensors", ".npz", ".npy"),
}


def parse(kind: type[Parsed], arguments: Sequence[str], *, prog: str, description: str) -> Parsed:
    """``[PRESET] [--field value …]`` as an options dataclass whose field ``config`` is the configuration."""
    if arguments and arguments[0].startswith(PREFIXES):
        raise ValueError(f"{arguments[0]} is not a preset: did you mean --data {arguments[0]}?")
    if arguments and (spec := data_spec(arguments[0])) is not None:
        raise ValueError(f"{arguments[0]} is not a run directory: did you mean --data {spec}?")
    default, rest = start(arguments)
    names = option_names(kind)
    options: Parsed = tyro.cli(
        kind,
        default=kind(default),  # type: ignore[call-arg]
        args=[_expanded(argument, names, prog) for argument in rest],
        prog=f"{prog} PRESET",
        description=f"{description}\n\n{presets_help(arguments)}",
    )
    data = options.config.data  # type: ignore[attr-defined]
    if (spec := data_spec(data)) is not None:
        raise ValueError(f"--data {data} is not a dataset: did you mean --data {spec}?")
    return options


def data_spec(path: str) -> str | None:
    """``folder:photos`` for an existing folder ``photos`` that is not a run; None if it is not data."""
    if not path or path.startswith("-") or not Path(path).exists():
        return None
    if Path(path).is_dir():
        return None if (Path(path) / "config.json").is_file() else f"folder:{path}"
    kinds = [prefix for prefix, suffixes in SUFFIXES.items() if path.endswith(suffixes)]
    return f"{kinds[0]}{path}" if kinds and Path(path).name != "config.json" else None


def full_name(name: str, names: Iterable[str], prog: str = "iaa train") -> str:
    """The option that a name stands for: itself, or the only one that ends in it.

    >>> from iaa.config import Config
    >>> full_name("lr", option_names(Config))
    'optimizer.lr'
    """
    known = list(names)
    if name in known:
        return name
    matches = [option for option in known if option.rpartition(".")[2] == name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ValueError(f"--{name} could be {' or '.join(f'--{option}' for option in matches)}: name one")
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    last_parts = {option.rpartition(".")[2]: option for option in known}
    near = near or [last_parts[part] for part in difflib.get_close_matches(name, last_parts, n=1)]
    hint = f"; did you mean --{near[0]}?" if near else "."
    raise ValueError(f"unknown option --{name}{hint} `{prog} --help` lists all options")


def option_names(kind: type[Any], prefix: str = "") -> list[str]:
    """Every option of a dataclass as it is spelled, fields of the configuration without a prefix."""
    names: list[str] = []
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        name = field.name.replace("_", "-")
        if dataclasses.is_dataclass(hints[field.name]):
            group = "" if field.name == "config" else f"{prefix}{name}."
            names += option_names(hints[field.name], group)
        else:
            names += [prefix + name] + [f"{prefix}no-{name}"] * (hints[field.name] is bool)
    return names


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """The configuration with some fields changed, such as ``{"augment.copies": 0}``."""
    fields: dict[str, Any] = json.loads(config.to_json())
    for key, value in changes.items():
        *groups, name = full_name(key.replace("_", "-"), option_names(Config)).replace("-", "_").split(".")
        group = fields
        for part in groups:
            group = group[part]
        group[name] = value
    return Config.from_json(json.dumps(fields), source="an arm")


def _expanded(argument: str, names: Sequence[str], prog: str) -> str:
    if not argument.startswith("--") or argument == "--help":
        return argument
    name, sign, value = argument[2:].partition("=")
    return f"--{full_name(name.replace('_', '-'), names, prog)}{sign}{value}"
