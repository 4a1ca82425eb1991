"""What the page shows of a run directory, or of an embeddings file."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iaa.analysis.cost import Cost, StepCost
from iaa.config import Config
from iaa.files import read_json
from iaa.runs import CONFIG, ENVIRONMENT, LOG, METRICS, Run

POINTS = 600
"""Steps drawn at most; of more, neighbours are averaged."""


@dataclass(frozen=True)
class LogColumns:
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
class RunSummary:
    """A training run, or an embeddings file by itself; what is missing is None."""

    name: str
    path: Path
    tests: dict[str, Path]
    """Embeddings files by test part, ``test`` unless there are several."""
    config: Config | None = None
    metrics: dict[str, Any] | None = None
    environment: dict[str, Any] | None = None
    log: LogColumns | None = None
    opened: Run | None = None
    """The run itself, with the data it has listed already."""


def read_run(path: str | os.PathLike[str]) -> RunSummary:
    """Read a run directory or an embeddings file."""
    run = Run(path)
    if run.path.is_file():
        return RunSummary(run.path.stem, run.path, {"test": run.path})
    if not run.path.is_dir():
        raise FileNotFoundError(f"no run and no embeddings file at {run.path}")
    if not run.embeddings_files:
        run.embeddings()  # says what is missing
    return RunSummary(
        run.name,
        run.path,
        run.embeddings_files,
        run.config if (run / CONFIG).is_file() else None,
        run.metrics if (run / METRICS).is_file() else None,
        run.environment if (run / ENVIRONMENT).is_file() else None,
        log_columns(run.name, run.log) if (run / LOG).is_file() else None,
        run,
    )


def log_columns(name: str, lines: Iterable[dict[str, Any]]) -> LogColumns | None:
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
    return LogColumns(
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
        content = read_json(path)
        steps = tuple(StepCost(**step) for step in content.pop("steps"))
        return Cost(**{**content, "steps": steps, "what": tuple(content["what"])})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not what `iaa analyze cost --out` writes: {error}") from error


def _means(values: list[float], every: int) -> list[float]:
    parts = [values[start : start + every] for start in range(0, len(values), every)]
    return [sum(part) / len(part) for part in parts]
