"""The cost of synthetics: time and memory of a training step for M = 0, 1, … (Fig. 11)."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from iaa.files import read_json
from iaa.method.checks import check_whole


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
    """Percent more than without copies, by the quickest steps, which other programs disturbed least."""
    mebibytes: float
    """Peak memory of tensors during a step, beyond what was allocated before it, in MiB."""
    more_memory: float
    """Percent more than without copies."""


@dataclass(frozen=True)
class Cost:
    """Everything measured in one process, numbers of copies taking turns."""

    steps: tuple[StepCost, ...]
    statistics_seconds: float
    """Estimation from embeddings and correction of all classes, once."""
    pass_seconds: float
    """Embedding the training set for it, once, without reading images."""
    epoch_seconds: float
    """An epoch of steps with the most copies, for comparison."""
    rounds: int
    what: tuple[str, ...]
    """The setting: data, network, loss, batch, device, threads; a sentence each."""


def measure(
    step: Callable[[int], object],
    statistics: Callable[[], object],
    embed: Callable[[], object],
    *,
    copies: Sequence[int] = (0, 1, 2, 3, 4, 5),
    rounds: int = 15,
    steps_per_epoch: int = 1,
    pass_share: float = 1.0,
    device: str = "cpu",
    what: Sequence[str] = (),
    tick: Callable[[float], None] = lambda done: None,
) -> Cost:
    """Time ``step(copies)`` in turns, so that a busy moment affects all equally; then statistics and pass.

    The order of the turns is reversed every other round. Memory is measured in separate steps. ``embed``
    goes through ``pass_share`` of the training set, and its time is scaled to the whole set.
    """
    check_whole("rounds", rounds, least=1)
    if not copies:
        raise ValueError("copies must hold at least one number")
    pass_seconds = min(_seconds(embed, device) for _ in range(3)) / pass_share
    statistics_seconds = min(_seconds(statistics, device) for _ in range(3))
    peaks = {}
    for number in copies:
        step(number)  # what is allocated once, such as the optimiser's moments, does not count
        peaks[number] = peak_bytes(lambda number=number: step(number), device) / 2**20  # type: ignore[misc]
    taken: dict[int, list[float]] = {number: [] for number in copies}
    for turn in range(rounds):
        for number in copies if turn % 2 == 0 else reversed(copies):
            taken[number].append(1000 * _seconds(lambda number=number: step(number), device))  # type: ignore[misc]
        tick((turn + 1) / rounds)
    first = copies[0]
    spans = {
        number: torch.tensor(times, dtype=torch.float64)
        .quantile(torch.tensor([0.25, 0.5, 0.75]).double())
        .tolist()
        for number, times in taken.items()
    }
    rows = tuple(
        StepCost(
            copies=number,
            milliseconds=middle,
            low=low,
            high=high,
            more_time=100 * (min(taken[number]) / min(taken[first]) - 1),
            mebibytes=peaks[number],
            more_memory=100 * (peaks[number] / peaks[first] - 1),
        )
        for number, (low, middle, high) in spans.items()
    )
    return Cost(
        steps=rows,
        statistics_seconds=statistics_seconds,
        pass_seconds=pass_seconds,
        epoch_seconds=steps_per_epoch * rows[-1].milliseconds / 1000,
        rounds=rounds,
        what=tuple(what),
    )


def read_cost(path: Path) -> Cost:
    """What ``iaa analyze cost --out`` has written."""
    try:
        content = read_json(path)
        steps = tuple(StepCost(**step) for step in content.pop("steps"))
        return Cost(**{**content, "steps": steps, "what": tuple(content["what"])})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not what `iaa analyze cost --out` writes: {error}") from error


def peak_bytes(work: Callable[[], object], device: str = "cpu") -> float:
    """Peak bytes of tensors while ``work`` runs, beyond those allocated before."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        torch.cuda.synchronize()
        return float(torch.cuda.max_memory_allocated() - before)
    from torch.profiler import ProfilerActivity, profile

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it announces itself on stderr
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        work()
    events = watched.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    total = torch.tensor([change for _, change in changes], dtype=torch.float64).cumsum(0)
    return max(0.0, float(total.max())) if len(total) else 0.0


def _seconds(work: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start
