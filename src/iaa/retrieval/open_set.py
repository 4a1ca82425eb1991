"""Or none of them? A score below which a query is called unknown, learned from classes held out in turns."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from iaa.retrieval.classify import Identifier

TURNS, MOST = 20, 4000
"""Times that a part of the classes is held out, and known and unknown queries asked in all."""
MANY = 2000
"""Images of a gallery from which on half as many turns do: a tenth less of them changes little."""
MIN_CLASSES, MIN_AUROC = 8, 0.6
"""Classes and AUROC below which there is no threshold: it would say nothing."""


@dataclass(frozen=True)
class Rate:
    """A share of queries, and the interval in which it lies with 95 % confidence for other classes."""

    share: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.share:.0f} % ({100 * self.low:.0f} to {100 * self.high:.0f})"


@dataclass(frozen=True)
class Threshold:
    """Scores below ``score`` are unknown; the two rates say how well that worked on held-out classes."""

    score: float
    known_kept: Rate
    """Queries of known classes that are not called unknown."""
    unknown_caught: Rate
    """Queries of other classes that are."""
    auroc: float
    """Chance that a query of a known class scores higher than one of another."""
    classes: int
    """Classes that were held out."""
    shots: int
    """Images that half of the known classes had at least."""


def calibrate(
    z: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    *,
    asks: Bool[Tensor, " n"] | None = None,
    shots: int | None = None,
    turns: int | None = None,
    seed: int = 0,
    reference: tuple[Tensor, Tensor] | None = None,
    **options: Any,
) -> Threshold:
    """The threshold that serves queries of known and of unknown classes equally well in this gallery.

    In turns a few of the classes are left out of the gallery and asked for: unknown queries meet the others
    with all their images. A few images of every other class (at least one, in as many turns as it has
    images) are left out in the same turn and asked for: known queries meet their class without themselves.

    Args:
        z: embeddings of the gallery's images.
        labels: their classes.
        asks: rows that may ask, such as those of classes that were not trained on; all by default.
        shots: images that a class has in the gallery at most, if it is to stand for one of smaller classes.
        turns: times that a part of the classes is held out; 20, or 10 in a gallery of many images, if None.
        seed: draws the parts.
        reference: further classes that lend covariance.
        options: those of ``Identifier``.
    """
    names, member = labels.unique(return_inverse=True)
    may_ask = torch.ones(len(labels), dtype=torch.bool) if asks is None else asks
    held_out = len(member[may_ask].unique())
    if held_out < MIN_CLASSES:
        raise ValueError(
            f"a threshold needs {MIN_CLASSES} classes or more to hold some out in turns, got {held_out}"
        )
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(names), generator=generator)
    turns = min(turns or (TURNS if len(z) < MANY else TURNS // 2), held_out)
    askers = torch.zeros(len(names), dtype=torch.bool).index_fill_(0, member[may_ask], True)
    order = torch.cat([order[askers[order]], order[~askers[order]]])  # every turn holds out some that ask
    class_turn = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order)) % turns)[member]
    place = _place(member, generator)
    image_turn = (
        place + class_turn + 1
    ) % turns  # so that the first images are asked for before it is held out
    share = min(1.0, MOST / max(1, int(may_ask.sum())))
    chosen = may_ask & (torch.rand(len(labels), generator=generator) < share)
    inside: list[_Asked] = []
    outside: list[_Asked] = []
    for turn in range(turns):
        others = class_turn != turn
        left_out = others & (image_turn == turn)
        alone = torch.bincount(member[others & ~left_out], minlength=len(names))[member] == 0
        left_out &= ~alone  # the only image of a class stays, or the class would be unknown
        frame = None
        for kept, queries, scores in (
            (others & ~left_out, chosen & left_out, inside),
            (others, chosen & ~others, outside),
        ):
            rows = kept if shots is None else _cut(member, place, kept, shots)
            identifier = Identifier(z[rows], member[rows], reference=reference, given_frame=frame, **options)
            frame = identifier.frame  # knows none of this turn's queries
            if bool(queries.any()):
                guess = identifier.rank(z[queries], top=2)
                scores.append(_Asked(member[queries], guess.label[:, 0], *guess.score.T))
    if not inside:
        raise ValueError("a threshold needs classes of two images or more: no query of a known class is left")
    yes, no = (_Asked(*map(torch.cat, zip(*scores, strict=True))) for scores in (inside, outside))
    apart = auroc(yes.score, no.score)
    if apart < MIN_AUROC:
        raise ValueError(f"known and unknown queries cannot be told apart: their AUROC is {apart:.2f}")
    turn_of = torch.empty_like(order).index_copy_(0, member, class_turn)
    limit = torch.empty(turns)  # a threshold looks better on the queries that it was chosen by
    for turn in range(turns):
        limit[turn] = _equal_rates(*(asked.score[turn_of[asked.label] != turn] for asked in (yes, no)))
    size = int(torch.bincount(member).median())
    return Threshold(
        _equal_rates(yes.score, no.score),
        yes.rate(limit[turn_of[yes.label]], torch.ge),
        no.rate(limit[turn_of[no.label]], torch.lt),
        apart,
        held_out,
        size if shots is None else min(size, shots),
    )


class _Asked(NamedTuple):
    """Queries: their class, the nearest class of the gallery, its score, and that of the next class."""

    label: Int64[Tensor, " q"]
    nearest: Int64[Tensor, " q"]
    score: Float[Tensor, " q"]
    next_score: Float[Tensor, " q"]

    def rate(self, limit: Tensor, compare: Callable[[Tensor, Tensor], Tensor]) -> Rate:
        """The share whose score compares so with the limit."""
        hit, without = compare(self.score, limit), compare(self.next_score, limit)
        return rate(hit, self.label, nearest=self.nearest, without=without)


def rate(
    hit: Bool[Tensor, " q"],
    labels: Int64[Tensor, " q"],
    *,
    nearest: Int64[Tensor, " q"] | None = None,
    without: Bool[Tensor, " q"] | None = None,
) -> Rate:
    """The share of hits with a 95 % interval over classes, because images of one class resemble each other.

    Wilson's interval at the number of independent queries that would vary as much as the classes do, with the
    quantile of Student's t for that many classes. A class counts twice, as one that is asked for and as one
    in the gallery: ``nearest`` is the class that decided over a query, and ``without`` would be the hit
    without it. Classes that resemble each other miss together, which makes the interval wider.
    """
    answers = labels if nearest is None else nearest
    member = torch.cat([labels, answers]).unique(return_inverse=True)[1]
    member, answered = member.chunk(2)
    size = torch.bincount(member, minlength=int(max(member.max(), answered.max())) + 1).double()
    hits = torch.zeros_like(size).index_add_(0, member, hit.double())
    total = float(size.sum())
    share = float(hits.sum()) / total
    influence = hits - share * size  # of a class on the sum of hits: the jackknife to first order
    if without is not None:
        change = (without.double() - hit.double()).where(member != answered, 0)
        influence = influence - torch.zeros_like(size).index_add_(0, answered, change)
        influence = influence - influence.mean()
    classes = int((size > 0).sum())
    if classes < 2:
        return Rate(share, 0.0, 1.0)
    variance = classes / (classes - 1) * float(influence.square().sum()) / total**2
    plain = share * (1 - share)
    independent = min(plain / variance, total) if variance > 0 else total if plain else float(classes)
    t = _student(classes - 1)
    centre = (share + t**2 / (2 * independent)) / (1 + t**2 / independent)
    half = t / (1 + t**2 / independent) * math.sqrt(plain / independent + t**2 / (4 * independent**2))
    return Rate(share, max(0.0, centre - half), min(1.0, centre + half))


def draw_shots(labels: Int64[Tensor, " n"], shots: int, generator: torch.Generator) -> Bool[Tensor, " n"]:
    """At most ``shots`` random rows of every class."""
    if shots < 1:
        raise ValueError(f"shots must be 1 or more, got {shots}")
    return _place(labels, generator) < shots


def auroc(known: Float[Tensor, " p"], unknown: Float[Tensor, " n"]) -> float:
    """Share of pairs in which the known one scores higher; ties count half.

    >>> auroc(torch.tensor([0.9, 0.5]), torch.tensor([0.5, 0.1]))
    0.875
    """
    values, position = torch.cat([known, unknown]).unique(return_inverse=True)
    count = torch.zeros(2, len(values), dtype=torch.float64)
    count[0].index_add_(0, position[: len(known)], torch.ones(len(known), dtype=torch.float64))
    count[1].index_add_(0, position[len(known) :], torch.ones(len(unknown), dtype=torch.float64))
    below = count[1].cumsum(0) - count[1] / 2
    return float(count[0] @ below / (len(known) * len(unknown)))


def _place(labels: Tensor, generator: torch.Generator) -> Int64[Tensor, " n"]:
    """The place of every row in a random order of its class, from 0."""
    shuffled = torch.randperm(len(labels), generator=generator)
    order = shuffled[labels[shuffled].argsort(stable=True)]
    sizes = labels[order].unique_consecutive(return_counts=True)[1]
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    return torch.empty_like(order).index_copy_(0, order, torch.arange(len(labels)) - first)


def _cut(member: Tensor, place: Tensor, kept: Tensor, shots: int) -> Bool[Tensor, " n"]:
    """The first ``shots`` rows of every class among those kept."""
    rows = kept.nonzero()[:, 0]
    rows = rows[(member[rows] * (int(place.max()) + 1) + place[rows]).argsort()]
    sizes = member[rows].unique_consecutive(return_counts=True)[1]
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    mask = torch.zeros_like(kept)
    mask[rows[torch.arange(len(rows)) - first < shots]] = True
    return mask


def _equal_rates(known: Tensor, unknown: Tensor) -> float:
    """The threshold that keeps as large a share of the known as it catches of the unknown.

    The best sum of both often has several maxima far apart, between which a few queries decide.
    """
    values = torch.cat([known, unknown]).unique()
    cuts = torch.cat([values[:1], (values[1:] + values[:-1]) / 2])
    kept = 1 - torch.searchsorted(known.sort().values, cuts).double() / len(known)
    caught = torch.searchsorted(unknown.sort().values, cuts).double() / len(unknown)
    return float(cuts[int((kept - caught).abs().argmin())])


def _student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t (Cornish-Fisher; within 0.1 % from 7 degrees of freedom on)."""
    z = 1.959964
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
