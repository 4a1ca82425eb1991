"""What lies in a run directory, or that there is only an embeddings file."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iaa.analysis.cost import Cost, StepCost
from iaa.analysis.mining import log_rows
from iaa.config import Config, load_config

POINTS = 600
"""Steps drawn at most; of more, neighbours are averaged."""


@dataclass(frozen=True)
class Log:
    """``log.jsonl`` in columns."""

    name: str
    step_epochs: list[float]
    """Where steps stand, in epochs."""
    step_losses: list[float]
    epochs: list[int]
    """Counted from 1."""
    losses: list[float]
    validation: list[tuple[int, dict[str, float]]]
    seconds: list[float]
    statistics_seconds: list[float]
    images_per_second: list[float]


@dataclass(frozen=True)
class Run:
    """A training run, or an embeddings file by itself; what is not there is None."""

    name: str
    path: Path
    tests: dict[str, Path]
    """Embeddings files by test part, ``test`` unless there are several."""
    config: Config | None = None
    metrics: dict[str, Any] | None = None
    surroundings: dict[str, Any] | None = None
    log: Log | None = None


def read_run(path: str | Path) -> Run:
    """Read a run directory or an embeddings file."""
    path = Path(path)
    if path.is_file():
        return Run(path.stem, path, {"test": path})
    if not path.is_dir():
        raise FileNotFoundError(f"no run and no embeddings file at {path}")
    files = sorted(path.glob("embeddings*.safetensors"))
    if not files:
        unfinished = (path / "config.json").is_file()
        hint = f"go on with `iaa train --resume {path}`" if unfinished else "`iaa train` makes a run"
        raise FileNotFoundError(f"{path} holds no embeddings*.safetensors: {hint}")
    order = ["small", "medium", "large"]
    tests = {file.stem.removeprefix("embeddings").lstrip("-") or "test": file for file in files}
    tests = dict(sorted(tests.items(), key=lambda pair: order.index(pair[0]) if pair[0] in order else -1))
    config = load_config(path) if (path / "config.json").is_file() else None
    log = path / "log.jsonl"
    name = path.resolve().name
    return Run(
        name,
        path,
        tests,
        config,
        _json(path / "metrics.json", needs=("epoch", "test", "table", "train", "training_seconds")),
        _json(path / "surroundings.json", needs=("machine", "versions", "commit")),
        read_log(name, log_rows(log)) if log.is_file() else None,
    )


def read_log(name: str, lines: Iterable[dict[str, Any]]) -> Log | None:
    """Columns of a log; None if it holds no whole epoch. Of an epoch that was begun twice the last counts."""
    steps: dict[tuple[int, int], float] = {}
    ends: dict[int, dict[str, Any]] = {}
    for row in lines:
        if "step" in row:
            steps[row["epoch"], row["step"]] = row["loss"]
        elif row.get("loss") is not None:
            ends[row["epoch"]] = row
    if not ends:
        return None
    per_epoch = 1 + max((step for _, step in steps), default=0)
    where = [epoch + (step + 0.5) / per_epoch for epoch, step in sorted(steps)]
    values = [steps[place] for place in sorted(steps)]
    every = max(1, -(-len(values) // POINTS))
    rows = [ends[epoch] for epoch in sorted(ends)]
    return Log(
        name,
        _means(where, every),
        _means(values, every),
        [row["epoch"] + 1 for row in rows],
        [row["loss"] for row in rows],
        [(row["epoch"] + 1, row["val"]) for row in rows if "val" in row],
        [row["seconds"] for row in rows],
        [row["statistics_seconds"] for row in rows],
        [row["images_per_second"] for row in rows],
    )


def read_cost(path: Path) -> Cost:
    """What ``iaa analyze cost --out`` has written."""
    try:
        found = json.loads(path.read_text())
        steps = tuple(StepCost(**step) for step in found.pop("steps"))
        return Cost(**{**found, "steps": steps, "what": tuple(found["what"])})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not what `iaa analyze cost --out` writes: {error}") from error


def _means(values: list[float], every: int) -> list[float]:
    parts = [values[start : start + every] for start in range(0, len(values), every)]
    return [sum(part) / len(part) for part in parts]


def _json(path: Path, *, needs: tuple[str, ...]) -> dict[str, Any] | None:
    """What a run has written; a file that is damaged is named."""
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged, it is no JSON: {error}") from error
    if not isinstance(found, dict) or not set(needs) <= set(found):
        raise ValueError(f"{path} is not what `iaa train` writes: it must hold {', '.join(needs)}")
    return found
