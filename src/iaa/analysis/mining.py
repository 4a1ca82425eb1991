"""What mining chose while training, from a run's log (Fig. 10)."""

from dataclasses import dataclass
from pathlib import Path


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
    """Read ``log.jsonl`` of a run; steps of a repeated epoch count once."""
    raise NotImplementedError
