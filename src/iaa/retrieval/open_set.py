"""Or none of them? A score below which a query is called unknown, learnt from classes that are held out."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from iaa.retrieval.classify import Identifier

DRAWS, MOST = 5, 4000
"""Times that classes are held out, and queries asked each time."""


@dataclass(frozen=True)
class Threshold:
    """Scores below ``score`` are unknown; the two shares say how well that worked on held-out classes."""

    score: float
    known_kept: float
    """Share of the queries of known classes that are not called unknown."""
    unknown_caught: float
    """Share of the queries of other classes that are."""
    auroc: float
    """Chance that a query of a known class scores higher than one of another."""
    classes: int
    shots: int


def calibrate(
    z: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    *,
    shots: int,
    known: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    **options: Any,
) -> Threshold:
    """The threshold that serves queries of known and of unknown classes equally well, on these classes.

    Several times a quarter of the classes is unknown, ``known`` others (a quarter too if not given, half at
    most) are known from ``shots`` images each, and the rest is the reference of the ``Identifier``, whose
    options these are. The more classes are known, the likelier a stranger resembles one of them.
    """
    names, member = labels.unique(return_inverse=True)
    if len(names) < 4:
        raise ValueError(f"a threshold needs 4 classes or more to hold some out, got {len(names)}")
    quarter = len(names) // 4
    several = max(1, min(quarter if known is None else known, len(names) // 2))
    generator = torch.Generator().manual_seed(seed)
    inside: list[Tensor] = []
    outside: list[Tensor] = []
    for _ in range(draws):
        order = torch.randperm(len(names), generator=generator)
        known_rows, other = (torch.isin(member, part) for part in (order[:several], order[-quarter:]))
        lends = ~known_rows & ~other
        taken = draw_shots(member, shots, generator) & known_rows
        asks = known_rows & ~taken
        if not bool(asks.any()):
            continue
        lenders = z[lends], member[lends]
        identifier = Identifier(z[taken], member[taken], reference=lenders, **options)
        for rows, scores in ((asks, inside), (other, outside)):
            at = _some(rows, generator)
            scores.append(identifier.rank(z[at], top=1).score[:, 0])
    if not inside:
        raise ValueError(f"a threshold needs classes of more than {shots} images: no query is left")
    yes, no = torch.cat(inside), torch.cat(outside)
    score, kept, caught = _balanced(yes, no)
    return Threshold(score, kept, caught, auroc(yes, no), len(names), shots)


def draw_shots(labels: Int64[Tensor, " n"], shots: int, generator: torch.Generator) -> Bool[Tensor, " n"]:
    """At most ``shots`` random rows of every class."""
    if shots < 1:
        raise ValueError(f"shots must be 1 or more, got {shots}")
    shuffled = torch.randperm(len(labels), generator=generator)
    order = shuffled[labels[shuffled].argsort(stable=True)]
    sizes = labels[order].unique_consecutive(return_counts=True)[1]
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    mask = torch.zeros(len(labels), dtype=torch.bool)
    mask[order[torch.arange(len(labels)) - first < shots]] = True
    return mask


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


def _balanced(known: Tensor, unknown: Tensor) -> tuple[float, float, float]:
    """The threshold with the best mean of both shares; the middle of the gap it lies in."""
    values = torch.cat([known, unknown]).unique()
    cuts = torch.cat([values[:1], (values[1:] + values[:-1]) / 2])
    kept = 1 - torch.searchsorted(known.sort().values, cuts).double() / len(known)
    caught = torch.searchsorted(unknown.sort().values, cuts).double() / len(unknown)
    best = int((kept + caught).argmax())
    return float(cuts[best]), float(kept[best]), float(caught[best])


def _some(rows: Tensor, generator: torch.Generator) -> Tensor:
    at = rows.nonzero()[:, 0]
    return at[torch.randperm(len(at), generator=generator)[:MOST]]
