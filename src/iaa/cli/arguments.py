"""Arguments of a command by tyro, and mistakes in them as one line with a remedy."""

import contextlib
import dataclasses
import difflib
import functools
import io
import itertools
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import tyro

from iaa.errors import unknown

Command = Callable[..., Any]
Parsed = TypeVar("Parsed")

SYNONYMS = {
    "backbone": "model",
    "batch-size": "batch.classes",
    "cuda": "device",
    "embedding-dim": "network.dim",
    "folder": "data",
    "gpu": "device",
    "k": "top",
    "learning-rate": "optimizer.lr",
    "margin": "loss-options",
}
"""Options as other programs call them, where the spelling alone would not lead to ours."""
PLAIN = {
    "invalid literal for int() with base 10": "expected a whole number, got",
    "could not convert string to float": "expected a number, got",
    "Expected 1 values": "Expected 1 value",
}
"""Words of Python in tyro's messages, and what they mean."""


def call(command: Command | Mapping[str, Command], prog: str, args: Sequence[str]) -> Any:
    """Parse the arguments of a command, or of one of several subcommands, and call it with them."""
    rest = list(args)
    if isinstance(command, Mapping) and rest and not rest[0].startswith("-"):
        if rest[0] not in command:
            raise unknown("the subcommand", rest[0], command)
        prog, command = f"{prog} {rest[0]}", command[rest.pop(0)]
    if isinstance(command, Mapping):
        deferred = {name: _deferred(function) for name, function in command.items()}
        return in_one_line(tyro.extras.subcommand_cli_from_dict, deferred, prog=prog, args=rest)()
    names = [*options_of(command), "help"]
    for argument in rest:
        if argument.startswith("--"):
            full_name(argument[2:].partition("=")[0].replace("_", "-"), names, prog)
    return in_one_line(tyro.cli, _deferred(command), prog=prog, args=rest)()


def options_of(function: Command) -> list[str]:
    """The options of a command function as they are spelled; positional arguments have none."""
    names: list[str] = []
    for name, hint in typing.get_type_hints(function, include_extras=True).items():
        plain = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
        if dataclasses.is_dataclass(plain):
            names += option_names(plain)
        elif name != "return" and "Positional" not in repr(hint):
            names += _spellings(name, plain)
    return names


def option_names(kind: Any, prefix: str = "") -> list[str]:
    """Every option of a dataclass as it is spelled, fields of the configuration without a prefix."""
    names: list[str] = []
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[field.name]):
            group = "" if field.name == "config" else f"{prefix}{field.name}."
            names += option_names(hints[field.name], group)
        else:
            names += [prefix + name for name in _spellings(field.name, hints[field.name])]
    return names


def _spellings(name: str, hint: Any) -> list[str]:
    option = name.replace("_", "-")
    return [option, f"no-{option}"] if hint is bool else [option]


def full_name(name: str, names: Iterable[str], prog: str = "iaa train") -> str:
    """The option that a name stands for: itself, or the only one that ends in it.

    >>> full_name("lr", ["epochs", "optimizer.lr"])
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
    spellings = {option.rpartition(".")[2]: option for option in known} | {option: option for option in known}
    near = [spellings[part] for part in difflib.get_close_matches(name, spellings, n=1)]
    near = [option for option in (SYNONYMS.get(name),) if option in known] or near
    hint = f"; did you mean --{near[0]}?" if near else "."
    raise ValueError(f"unknown option --{name}{hint} `{prog} --help` lists all options")


def in_one_line(parse: Callable[..., Parsed], *given: Any, prog: str, **options: Any) -> Parsed:
    """Run a parser of tyro; what it would print about a mistake, in a frame, becomes a ``ValueError``."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            return parse(*given, prog=prog, **options)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(_unframed(printed.getvalue(), prog.removesuffix(" PRESET"))) from None


def _deferred(function: Command) -> Command:
    """The same arguments and help, but parsing them does not call the function yet."""
    # tyro keeps line breaks before indented lines, such as the second line about an argument
    function.__doc__ = re.sub(r"(?<=\S)\n {9,}(?=\S)", " ", function.__doc__ or "")

    @functools.wraps(function)
    def later(*args: Any, **options: Any) -> Callable[[], Any]:
        return functools.partial(function, *args, **options)

    return later


def _unframed(text: str, prog: str) -> str:
    """The message of a frame, drawn in line characters or in ASCII: what stands between title and rulers."""
    _, *rows = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    rows = [row.strip("│ ") for row in rows]
    below_title = itertools.dropwhile(_is_ruler, rows)
    message = " ".join(" ".join(itertools.takewhile(lambda row: not _is_ruler(row), below_title)).split())
    message = re.sub(r"^Missing from [^:]*: ((?:--\S+ )?\S+)", r"missing \1:", message)
    message = message.removesuffix("(required)")
    for words, meaning in PLAIN.items():
        message = message.replace(f"{words}:", meaning).replace(words, meaning)
    surplus = message.removeprefix("Unrecognized options: ")
    if surplus != message:
        message = f"{surplus!r} is one argument too many: put names with spaces in quotes"
    return f"{message[:1].lower()}{message[1:].rstrip('. ')}; `{prog} --help` lists all options"


def _is_ruler(row: str) -> bool:
    return not row.strip("─-╰╯")
