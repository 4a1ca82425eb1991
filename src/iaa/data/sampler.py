"""The balanced sampler: batches of P classes x K images, planned as a pure function of (seed, epoch)."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Sampler

from iaa.errors import unknown

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Plan:
    """All batches of an epoch, for all ranks: batch ``b`` is ``rows[edges[b]:edges[b + 1]]``."""

    rows: Ids
    edges: Ids

    def __len__(self) -> int:
        return len(self.edges) - 1

    def __getitem__(self, batch: int) -> Ids:
        return self.rows[self.edges[batch] : self.edges[batch + 1]]


def balanced_plan(
    labels: npt.ArrayLike,
    *,
    classes: int,
    per_class: int,
    seed: int = 0,
    epoch: int = 0,
    rounds: int | None = None,
    small: str = "take",
    world_size: int = 1,
) -> Plan:
    """Deal every class ``rounds`` times into batches of ``classes`` classes with ``per_class`` images each.

    The epoch is as many rounds as come nearest to showing every image once. Batches differ by one class at
    most, none repeats a class and none has fewer than two; their number is a multiple of ``world_size``. A
    class with fewer than ``per_class`` images gives what it has (``small="take"``) or repeats them.
    """
    if small not in ("take", "repeat"):
        raise unknown("small", small, ("take", "repeat"))
    if classes < 2 or per_class < 1:
        raise ValueError(f"a batch needs classes >= 2 and per_class >= 1, got {classes} and {per_class}")
    ids, inverse, count = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
    if len(ids) < 2:
        raise ValueError(f"the balanced sampler needs images of at least 2 classes, got {len(ids)}")
    number, width = len(ids), min(classes, len(ids))
    if rounds is None:
        rounds = max(1, round(len(inverse) / int(np.minimum(count, per_class).sum())))
    rounds, batches = _fit(number, width, rounds, world_size)
    rng = np.random.default_rng([seed, epoch])
    edges = np.arange(batches + 1) * (rounds * number) // batches
    together = edges[::world_size] if number >= width * world_size else edges
    slots = _deal(rng, number, rounds, together)
    rows, sizes = _draw(rng, inverse, count, slots, rounds, per_class, repeat=small == "repeat")
    return Plan(rows, np.r_[0, np.cumsum(sizes)][edges])


class BalancedSampler(Sampler[list[int]]):
    """A batch sampler over :func:`balanced_plan`; every rank takes its own batches of the one common plan.

    Workers fetch ahead, so only the training loop knows how far it is: ``set_epoch(epoch, start=done)``
    continues after the batches that are done.
    """

    def __init__(
        self,
        labels: npt.ArrayLike | torch.Tensor,
        *,
        classes: int,
        per_class: int,
        seed: int = 0,
        rounds: int | None = None,
        small: str = "take",
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must lie in [0, {world_size}), got {rank}")
        self.labels = np.asarray(labels)
        self.options: dict[str, Any] = {"classes": classes, "per_class": per_class, "seed": seed}
        self.options |= {"rounds": rounds, "small": small, "world_size": world_size}
        self.rank, self.world_size = rank, world_size
        self.set_epoch(0)

    def set_epoch(self, epoch: int, *, start: int = 0) -> None:
        """Plan an epoch; ``start`` leaves out the batches of this rank that are done already."""
        self.epoch, self.start = epoch, start
        self.plan = balanced_plan(self.labels, **self.options, epoch=epoch)

    def __len__(self) -> int:
        return max(0, len(self.plan) // self.world_size - self.start)

    def positions(self) -> range:
        """This rank's batches in the plan, those that are done left out."""
        return range(self.start * self.world_size + self.rank, len(self.plan), self.world_size)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.positions():
            yield self.plan[batch].tolist()

    @property
    def fingerprint(self) -> str:
        """A hash of labels and options: equal ones give equal plans."""
        digest = hashlib.sha256(np.ascontiguousarray(self.labels, dtype=np.int64).tobytes())
        digest.update(repr(sorted(self.options.items())).encode())
        return digest.hexdigest()[:16]


class Numbered(Sampler[list[tuple[int, int]]]):
    """The batches of a sampler with a number for each image, off which its crop and flip are read.

    The number is a function of seed, epoch and position in the plan alone: neither workers, ranks nor an
    interruption change what an image looks like.
    """

    def __init__(self, sampler: BalancedSampler) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        seed, epoch, plan = self.sampler.options["seed"], self.sampler.epoch, self.sampler.plan
        origin = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0]
        for batch in self.sampler.positions():
            positions = np.arange(plan.edges[batch], plan.edges[batch + 1], dtype=np.uint64)
            yield list(zip(plan[batch].tolist(), _scatter(origin, positions).tolist(), strict=True))


def _scatter(origin: np.uint64, positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Numbers that look random, one for every place (the mixing steps of splitmix64)."""
    x = origin + positions * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed


def _fit(number: int, width: int, rounds: int, world_size: int) -> tuple[int, int]:
    """Rounds (at least those asked for) and batches: as many on each rank, two classes or more in each."""
    while True:
        batches = -(-number * rounds // (width * world_size)) * world_size
        if number * rounds >= 2 * batches:
            return rounds, batches
        rounds += 1


def _deal(rng: np.random.Generator, number: int, rounds: int, edges: Ids) -> Ids:
    """Class per slot: one permutation after the other, such that no batch holds a class twice."""
    slots = np.empty(number * rounds, dtype=np.int64)
    for start in range(0, len(slots), number):
        order = rng.permutation(number)
        after = int(np.searchsorted(edges, start, side="right"))
        begin, end = int(edges[after - 1]), int(edges[min(after, len(edges) - 1)])
        if begin < start:  # a batch reaches over from the last round: keep its classes out of its rest
            head = min(end - start, number)
            taken = np.zeros(number, dtype=bool)
            taken[slots[begin:start]] = True
            clash = np.flatnonzero(taken[order[:head]])
            spare = head + np.flatnonzero(~taken[order[head:]])[: len(clash)]
            clash = clash[: len(spare)]
            order[clash], order[spare] = order[spare], order[clash]
        slots[start : start + number] = order
    return slots


def _draw(
    rng: np.random.Generator,
    inverse: Ids,
    count: Ids,
    slots: Ids,
    rounds: int,
    per_class: int,
    *,
    repeat: bool,
) -> tuple[Ids, Ids]:
    """Images for every slot and how many each got; a class is gone through by whole draws before it is
    shuffled anew.
    """
    members = np.argsort(inverse, kind="stable")
    first = np.r_[0, np.cumsum(count)[:-1]]
    groups = np.maximum(count // per_class, 1)  # draws of per_class that one shuffle of the class serves
    passes = -(-rounds // groups)
    # one entry per class, pass and image; sorting by block + chance shuffles them all at once
    owner = np.repeat(np.arange(len(count)), passes)
    block = np.repeat(np.arange(len(owner)), count[owner])
    offset = np.r_[0, np.cumsum(count[owner])]
    entry = np.arange(offset[-1]) - offset[block]
    shuffled = members[(first[owner[block]] + entry)[np.argsort(block + 0.999 * rng.random(len(block)))]]
    turn = np.empty_like(slots)  # how often the class was dealt before
    by_class = np.argsort(slots, kind="stable")
    turn[by_class] = np.tile(np.arange(rounds), len(count))
    which, part = np.divmod(turn, groups[slots])
    begin = offset[np.r_[0, np.cumsum(passes)[:-1]][slots] + which] + part * per_class
    sizes = np.full(len(slots), per_class) if repeat else np.minimum(count[slots], per_class)
    step = np.arange(sizes.sum()) - np.repeat(np.r_[0, np.cumsum(sizes)[:-1]], sizes)
    return shuffled[np.repeat(begin, sizes) + step % np.repeat(count[slots], sizes)], sizes
