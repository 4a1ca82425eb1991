"""A run's ``log.jsonl`` in columns, for curves, and the pairs that mining chose (Fig. 10)."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iaa.run_records import read_log
from iaa.runs import LOG

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
class Mining:
    """Means over the steps of each epoch."""

    name: str
    epochs: tuple[int, ...]
    """Counted from 1."""
    loss: tuple[float, ...]
    negatives: tuple[float, ...]
    """Negative pairs (or triplets) mined in a step."""
    positives: tuple[float, ...]
    synthetic_negatives: tuple[float, ...]
    """Share of them with a synthetic candidate, in [0, 1]."""
    synthetic_positives: tuple[float, ...]
    chooses: bool
    """False for a loss that mines no pairs, so that all of these are 0."""


def log_columns(name: str, lines: Iterable[dict[str, Any]]) -> LogColumns | None:
    """Columns of a log; None if it holds no whole epoch. If an epoch was begun twice, the second counts."""
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
    positions = [epoch + (step + 0.5) / per_epoch for epoch, step in sorted(steps)]
    values = [steps[key] for key in sorted(steps)]
    every = max(1, -(-len(values) // POINTS))
    rows = [ends[epoch] for epoch in sorted(ends)]
    return LogColumns(
        name,
        _means(positions, every),
        _means(values, every),
        [row["epoch"] + 1 for row in rows],
        [row["loss"] for row in rows],
        [(row["epoch"] + 1, row["val"]) for row in rows if "val" in row],
        [row["seconds"] for row in rows],
        [row["statistics_seconds"] for row in rows],
        [row["images_per_second"] for row in rows],
    )


def mining(run: Path) -> Mining:
    """Read ``log.jsonl`` of a run, finished or not."""
    file = run / LOG
    if not file.is_file():
        raise FileNotFoundError(f"no log.jsonl in {run}: is it a run directory of `iaa train`?")
    epochs: dict[int, dict[int, dict[str, Any]]] = {}
    for line in read_log(file):
        if "step" in line:  # of an epoch that was begun twice, the second time counts
            epochs.setdefault(line["epoch"], {})[line["step"]] = line
    if not epochs:
        raise ValueError(f"{file} holds no training step yet")
    columns = {
        key: tuple(_mean([*steps.values()], key) for steps in epochs.values())
        for key in ("loss", "negatives", "positives", "synthetic_negatives", "synthetic_positives")
    }
    return Mining(
        name=run.resolve().name,
        epochs=tuple(epoch + 1 for epoch in epochs),
        chooses=any(any(values) for key, values in columns.items() if key != "loss"),
        **columns,
    )


def _means(values: list[float], every: int) -> list[float]:
    parts = [values[start : start + every] for start in range(0, len(values), every)]
    return [sum(part) / len(part) for part in parts]


def _mean(steps: list[dict[str, Any]], key: str) -> float:
    values = [step[key] for step in steps if step.get(key) is not None]
    return sum(values) / len(values) if values else 0.0
