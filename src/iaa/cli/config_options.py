"""Fields of the configuration as options of train, compare and ablate, with hints for common mistakes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro

from iaa.cli.arguments import full_name, in_one_line, option_names
from iaa.config import Config
from iaa.errors import missing_folder, unknown
from iaa.presets import presets_help, start

Parsed = TypeVar("Parsed")
BENCHMARKS = ("cub", "cars", "sop", "inshop", "vehicleid", "emoji")
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
    if arguments and Path(arguments[0]).is_file() and not arguments[0].endswith(".json"):
        raise missing_folder(Path(arguments[0]))
    default, rest = start(arguments)
    names = option_names(kind)
    options: Parsed = in_one_line(
        tyro.cli,
        kind,
        default=kind(default),  # type: ignore[call-arg]
        args=[_expanded(argument, names, prog) for argument in rest],
        prog=f"{prog} PRESET",
        description=f"{description}\n\n{presets_help(arguments)}",
    )
    _check_data(options.config.data)  # type: ignore[attr-defined]
    return options


def _check_data(data: str) -> None:
    """Refuse what is not there before a network is downloaded for it."""
    if (spec := data_spec(data)) is not None:
        raise ValueError(f"--data {data} is not a dataset: did you mean --data {spec}?")
    prefix = next((prefix for prefix in PREFIXES if data.startswith(prefix)), "")
    path = Path(data.removeprefix(prefix)).expanduser()
    if (prefix == "folder:" and not path.is_dir()) or (not prefix and path.is_file()):
        raise missing_folder(path)
    if prefix and not path.exists():
        raise FileNotFoundError(f"--data {data}: there is no file {path}")
    if not prefix and data not in BENCHMARKS:
        raise unknown("--data", data, (*BENCHMARKS, "folder:DIR", "table:FILE", "embeddings:FILE"))


def data_spec(path: str) -> str | None:
    """``folder:photos`` for an existing folder ``photos`` that is not a run; None if it is not data."""
    if not path or path.startswith("-") or not Path(path).exists():
        return None
    if Path(path).is_dir():
        return None if (Path(path) / "config.json").is_file() else f"folder:{path}"
    kinds = [prefix for prefix, suffixes in SUFFIXES.items() if path.endswith(suffixes)]
    return f"{kinds[0]}{path}" if kinds and Path(path).name != "config.json" else None


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
