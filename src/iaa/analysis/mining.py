"""What mining chose while training, from a run's log (Fig. 10)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Mining:
    """Means over the steps of each epoch; None where the log says nothing of it."""

    name: str
    epochs: tuple[int, ...]
    """Counted from 1."""
    loss: tuple[float, ...]
    negatives: tuple[float | None, ...]
    """Negative pairs (or triplets) chosen a step."""
    positives: tuple[float | None, ...]
    synthetic_negatives: tuple[float, ...]
    """Share of them with a synthetic candidate, in [0, 1]."""
    synthetic_positives: tuple[float, ...]
    chooses: bool
    """False for a loss that chooses no pairs, so that all of this is 0."""


def mining(run: Path) -> Mining:
    """Read ``log.jsonl`` of a run, finished or not."""
    file = run / "log.jsonl"
    if not file.is_file():
        raise FileNotFoundError(f"no log.jsonl in {run}: is it a run directory of `iaa train`?")
    epochs: dict[int, list[dict[str, Any]]] = {}
    for line in log_rows(file):
        if "step" in line:
            epochs.setdefault(line["epoch"], []).append(line)
    if not epochs:
        raise ValueError(f"{file} holds no training step yet")
    columns = {
        key: tuple(_mean(steps, key) for steps in epochs.values())
        for key in ("loss", "negatives", "positives", "synthetic_negatives", "synthetic_positives")
    }
    told = [one for key in columns if key != "loss" for one in columns[key] if one]
    return Mining(
        name=run.resolve().name,
        epochs=tuple(epoch + 1 for epoch in epochs),
        loss=tuple(one or 0.0 for one in columns["loss"]),
        negatives=columns["negatives"],
        positives=columns["positives"],
        synthetic_negatives=tuple(one or 0.0 for one in columns["synthetic_negatives"]),
        synthetic_positives=tuple(one or 0.0 for one in columns["synthetic_positives"]),
        chooses=bool(told),
    )


def log_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a ``log.jsonl``; a last one that is not whole is left out."""
    with open(file, encoding="utf-8", errors="replace") as lines:
        for number, text in enumerate(lines, 1):
            if not text.endswith("\n"):
                return  # the run is writing this very line
            try:
                line = json.loads(text)
            except json.JSONDecodeError as error:
                raise ValueError(f"line {number} of {file} is no JSON: {error}") from error
            if not isinstance(line, dict) or "epoch" not in line:
                raise ValueError(f"line {number} of {file} is no row of a run's log: {text.strip()[:60]}")
            yield line


def _mean(steps: list[dict[str, Any]], key: str) -> float | None:
    found = [step[key] for step in steps if step.get(key) is not None]
    return sum(found) / len(found) if found else None
