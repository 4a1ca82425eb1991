"""The class atlas: each class's Gaussian, the classes that lend to it, and its extreme samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from iaa.analysis.mislabelled import Explained, Suspect, explain, suspects
from iaa.method.checks import check_whole
from iaa.method.correction import correct, correction_weight, lenders
from iaa.method.gaussians import ClassStats, estimate
from iaa.retrieval.ranking import rank_within_class

KERNEL = ("neighbors", "mean_width", "cov_width", "scale", "search")
"""The options of ``iaa.correct`` that decide which class lends how much."""
BLOCK = 2**22
"""Numbers held at a time."""


@dataclass(frozen=True)
class Lender:
    """A neighbour class and its share in what is lent, in [0, 1]."""

    label: int
    name: str
    share: float


@dataclass(frozen=True)
class Sample:
    """A sample by its row, its id, and its distance to the mean of its class without it."""

    row: int
    id: str
    distance: float
    """In standard deviations of the class, root mean square over dimensions; about 1 is normal."""


@dataclass(frozen=True)
class ClassRow:
    """One class; a row of the atlas."""

    label: int
    name: str
    count: int
    total_variance: float
    """Sum of the class's own variances over dimensions (trace of its covariance)."""
    corrected_variance: float
    """The same after correction."""
    effective_rank: float | None
    """Directions it varies in: squared sum over sum of squares of the eigenvalues; None for one sample."""
    alpha: float
    """How much it borrows, in [0, 1] (Eq. 16)."""
    lenders: tuple[Lender, ...]
    """Those that lend most, largest share first; empty where it borrows nothing."""
    moved: float | None
    """Distance of own and corrected variances over the length of its own; None where that is 0."""
    extremes: tuple[Sample, ...]
    """Its samples farthest from the mean of the others, farthest first; empty for one sample."""


@dataclass(frozen=True)
class Atlas:
    """All classes, and the samples that are likely to carry a wrong label, most likely first."""

    classes: tuple[ClassRow, ...]
    """In the order of their labels."""
    suspects: tuple[Suspect, ...]
    suspected: int
    """How many there are in all, shown or not."""
    samples: int
    dim: int
    options: dict[str, Any]
    """Of the correction, as given to ``iaa.correct``."""


@torch.no_grad()
def atlas(
    z: Float[Tensor, "N D"],
    labels: Integer[Tensor, "N"],
    *,
    ids: Sequence[str] | None = None,
    names: dict[int, str] | None = None,
    lenders_shown: int = 5,
    extremes_shown: int = 3,
    suspects_shown: int = 100,
    candidates: int = 5,
    tick: Callable[[float], None] = lambda done: None,
    **correction: Any,
) -> Atlas:
    """The atlas of un-normalised embeddings; ``correction`` are the options of ``iaa.correct``.

    ``candidates`` other classes, those with the nearest means, may explain a sample better than its own.
    """
    shown = {"lenders": lenders_shown, "extremes": extremes_shown, "suspects": suspects_shown}
    for what, number in shown.items():
        check_whole(what, number, least=0)
    known, inverse = labels.unique(return_inverse=True)
    stats = estimate(z, inverse, num_classes=len(known))
    class_names = [(names or {}).get(label, str(label)) for label in known.tolist()]
    sample_ids = list(ids) if ids is not None else [str(row) for row in range(len(z))]
    explained = explain(z, inverse, stats, candidates=candidates, tick=tick, **correction)
    alpha = correction_weight(stats.count.to(stats.mean.dtype), **_only(correction, "falloff", "few"))
    corrected = correct(stats, **correction)
    length = stats.variance.norm(dim=1)
    moved = (corrected - stats.variance).norm(dim=1) / length
    lent = _lent(stats, alpha, lenders_shown, _only(correction, *KERNEL))
    extremes = _extremes(explained, inverse, len(known), extremes_shown)
    tensors = (stats.count, stats.variance.sum(1), corrected.sum(1), effective_rank(z, inverse, stats), alpha)
    columns = (tensor.tolist() for tensor in (known, *tensors, moved, length))
    rows = []
    for position, row in enumerate(zip(*columns, strict=True)):
        label, count, total, after, rank, borrows, shift, size = row
        rows.append(
            ClassRow(
                label=label,
                name=class_names[position],
                count=count,
                total_variance=total,
                corrected_variance=after,
                effective_rank=rank if count > 1 and size > 0 else None,
                alpha=borrows,
                lenders=tuple(Lender(int(known[i]), class_names[i], share) for i, share in lent[position]),
                moved=shift if size > 0 else None,
                extremes=tuple(Sample(i, sample_ids[i], distance) for i, distance in extremes[position]),
            )
        )
    return Atlas(
        classes=tuple(rows),
        suspects=suspects(explained, inverse, known, class_names, sample_ids, suspects_shown),
        suspected=int((explained.evidence > 0).sum()),
        samples=len(z),
        dim=z.shape[1],
        options=dict(correction),
    )


def _only(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}


def effective_rank(
    z: Float[Tensor, "N D"], labels: Int[Tensor, "N"], stats: ClassStats
) -> Float[Tensor, "C"]:
    """How many directions each class varies in: (sum of eigenvalues)^2 / sum of their squares.

    From the products of a class's centred samples with each other (or of its dimensions, if these are fewer),
    many classes of like size at a time; 0 for a class that does not vary.
    """
    dim, by_class = z.shape[1], labels.argsort(stable=True)
    start = stats.count.cumsum(0) - stats.count
    by_size = stats.count.argsort(descending=True, stable=True)
    ranks = stats.mean.new_zeros(len(stats.count))
    done = 0
    while done < len(by_size):
        largest = max(1, int(stats.count[by_size[done]]))
        classes = by_size[done : done + max(1, BLOCK // (largest * (dim + min(largest, dim))))]
        offset = torch.arange(largest, device=z.device)
        inside = (offset < stats.count[classes, None])[:, :, None]
        member = (start[classes, None] + offset).clamp(max=len(z) - 1)
        rows = (z[by_class[member]] - stats.mean[classes, None]).where(inside, 0)
        products = rows @ rows.mT if largest <= dim else rows.mT @ rows
        squares = products.square().sum((1, 2))
        ranks[classes] = rows.square().sum((1, 2)).square() / squares.where(squares > 0, 1)
        done += len(classes)
    return ranks


def _lent(
    stats: ClassStats, alpha: Float[Tensor, "C"], shown: int, kernel: dict[str, Any]
) -> list[list[tuple[int, float]]]:
    """Per class the positions of those that lend most, and their shares."""
    lent: list[list[tuple[int, float]]] = [[] for _ in range(len(alpha))]
    borrows = (alpha > 0).nonzero().flatten()
    near, shares = lenders(stats, borrows, **kernel)
    largest, which = shares.topk(min(shown, shares.shape[1]), dim=1)
    columns = (borrows.tolist(), near.gather(1, which).tolist(), largest.tolist())
    for row, classes, parts in zip(*columns, strict=True):
        lent[row] = [(i, share) for i, share in zip(classes, parts, strict=True) if share > 0]
    return lent


def _extremes(
    explained: Explained, labels: Int[Tensor, "N"], classes: int, shown: int
) -> list[list[tuple[int, float]]]:
    """Per class the rows farthest from the mean of the others, and how far they are."""
    order = explained.distance.nan_to_num(-1).argsort(descending=True, stable=True)
    order = order[labels[order].argsort(stable=True)]
    count = torch.bincount(labels, minlength=classes)
    first = order[(rank_within_class(labels[order]) < shown) & (count[labels[order]] > 1)]
    extremes: list[list[tuple[int, float]]] = [[] for _ in range(classes)]
    columns = zip(labels[first].tolist(), first.tolist(), explained.distance[first].tolist(), strict=True)
    for label, row, distance in columns:
        extremes[label].append((row, distance))
    return extremes
