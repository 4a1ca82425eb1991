"""The pairs that mining chose during training, from a run's log (Fig. 10)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iaa.run_records import read_log
from iaa.runs import LOG


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


def mining(run: Path) -> Mining:
    """Read ``log.jsonl`` of a run, finished or not."""
    file = run / LOG
    if not file.is_file():
        raise FileNotFoundError(f"no log.jsonl in {run}: is it a run directory of `iaa train`?")
    epochs: dict[int, list[dict[str, Any]]] = {}
    for line in read_log(file):
        if "step" in line:
            epochs.setdefault(line["epoch"], []).append(line)
    if not epochs:
        raise ValueError(f"{file} holds no training step yet")
    columns = {
        key: tuple(_mean(steps, key) for steps in epochs.values())
        for key in ("loss", "negatives", "positives", "synthetic_negatives", "synthetic_positives")
    }
    return Mining(
        name=run.resolve().name,
        epochs=tuple(epoch + 1 for epoch in epochs),
        chooses=any(any(values) for key, values in columns.items() if key != "loss"),
        **columns,
    )


def _mean(steps: list[dict[str, Any]], key: str) -> float:
    values = [step[key] for step in steps if step.get(key) is not None]
    return sum(values) / len(values) if values else 0.0
