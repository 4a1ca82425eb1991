"""What synthetics cost: time and memory of a training step for M = 0, 1, … (Fig. 11)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StepCost:
    """One number of copies."""

    copies: int
    milliseconds: float
    """Median of a whole training step: network, synthetics, loss, gradients, optimiser."""
    low: float
    """First quartile, in milliseconds."""
    high: float
    """Third quartile."""
    more_time: float
    """Over no copies, in percent."""
    mebibytes: float
    """Most memory that tensors took at once during a step, in MiB."""
    more_memory: float
    """Over no copies, in percent."""


@dataclass(frozen=True)
class Cost:
    """All measured in one run, contenders taking turns."""

    steps: tuple[StepCost, ...]
    statistics_seconds: float
    """Estimation from embeddings and correction of all classes, once."""
    pass_seconds: float
    """Embedding the training set for it, once."""
    epoch_seconds: float
    """An epoch of steps with the most copies, for scale."""
    rounds: int
    what: tuple[str, ...]
    """What was measured: data, network, loss, batch, device, threads; a sentence each."""


def measure(
    step: Callable[[int], None],
    statistics: Callable[[], None],
    embed: Callable[[], None],
    *,
    copies: Sequence[int] = (0, 1, 2, 3, 4, 5),
    rounds: int = 15,
    steps_per_epoch: int = 1,
    what: Sequence[str] = (),
    tick: Callable[[float], None] = lambda done: None,
) -> Cost:
    """Time ``step(copies)`` in turns, so that a busy moment hits all alike; statistics and pass apart."""
    raise NotImplementedError
