"""Likely mislabelled samples: those that another class explains better than their own does without them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from iaa.method.correction import correct, correction_weight, global_variance
from iaa.method.gaussians import ClassStats
from iaa.retrieval.knn import knn

BLOCK = 2**22
"""Numbers held at a time."""
FLOOR = 0.01
"""Least variance of a class in a dimension, as a share of the global one: few equal values prove nothing."""


@dataclass(frozen=True)
class Suspect:
    """A sample that another class explains better than its own."""

    row: int
    id: str
    label: int
    name: str
    distance: float
    """To its own class without it, in standard deviations (root mean square over dimensions)."""
    other_label: int
    other_name: str
    other_distance: float
    evidence: float
    """By how much the other class explains it better: log-likelihood ratio per dimension, in nats.

    Either class may widen its Gaussian by a factor to fit the sample, else mere outliers would lead the list.
    """


@dataclass(frozen=True)
class Explained:
    """Every sample under its own class without it, and under the other class that explains it best.

    Distances are in standard deviations, root mean square over dimensions; nan where a class has one sample.
    """

    distance: Float[Tensor, "N"]
    other: Int[Tensor, "N"]
    """Position of that class; its own if there is no other."""
    other_distance: Float[Tensor, "N"]
    evidence: Float[Tensor, "N"]
    """Log-likelihood of the other class less that of its own, per dimension; above 0 is suspicious."""


@torch.no_grad()
def explain(
    z: Float[Tensor, "N D"],
    labels: Int[Tensor, "N"],
    stats: ClassStats,
    *,
    candidates: int = 5,
    tick: Callable[[float], None] = lambda done: None,
    **correction: Any,
) -> Explained:
    """Mahalanobis distances with corrected diagonal covariances, the own class without the sample.

    All classes borrow, whatever ``few`` says: single variances estimated too small would decide alone.

    Leaving out is in closed form: mean (n m - z) / (n - 1), variance n / (n - 1) (v - (z - m)^2 / (n - 1)),
    corrected with the weight of n - 1 samples; what neighbours lend stays that of the whole class. Others are
    the ``candidates`` classes with the nearest means. Variances count the error of the mean itself.
    """
    z = z.to(stats.mean.dtype)
    overall = global_variance(stats)
    used = (overall > 0).nonzero().flatten()  # dimensions in which nothing varies say nothing
    if len(used) == 0:
        raise ValueError("all samples of every class are equal: there is no variance to measure distances in")
    floor = FLOOR * overall[used]
    options = {**correction, "few": torch.inf}
    weight = {key: options[key] for key in ("falloff", "few") if key in options}
    lent = correct(stats, **{**options, "falloff": 0.0})[:, used]  # alpha = 1
    size = stats.count.to(z.dtype)
    ready = correct(stats, **options)[:, used].maximum(floor) * (1 + 1 / size.clamp(min=1))[:, None]
    near = knn(z, stats.mean, k=min(candidates + 1, len(size)), distance="euclidean").index
    parts = []
    step = max(1, BLOCK // (near.shape[1] * len(used)))
    for rows in torch.arange(len(z), device=z.device).split(step):
        own, sample = labels[rows], z[rows][:, used]
        n, others = size[own, None], near[rows]
        gap = sample - stats.mean[own][:, used]
        left = n / (n - 1) * (stats.variance[own][:, used] - gap.square() / (n - 1))
        alpha = correction_weight(n[:, 0] - 1, **weight)
        variance = left.clamp(min=0).lerp(lent[own], alpha[:, None]).maximum(floor) * (1 + 1 / (n - 1))
        mine, my_fit = _fit(gap * n / (n - 1), variance)
        theirs, fit = _fit(sample[:, None] - stats.mean[:, used][others], ready[others])
        fit = fit.where(others != own[:, None], -torch.inf)
        best = fit.argmax(1, keepdim=True)
        chosen = [part.gather(1, best)[:, 0] for part in (others, theirs, fit)]
        parts.append((mine, chosen[0], chosen[1], chosen[2] - my_fit))
        tick(float(rows[-1] + 1) / len(z))
    distance, other, other_distance, evidence = (torch.cat(column) for column in zip(*parts, strict=True))
    alone = size[labels] < 2
    return Explained(
        distance.masked_fill(alone, torch.nan), other, other_distance, evidence.masked_fill(alone, torch.nan)
    )


def suspects(
    explained: Explained,
    labels: Int[Tensor, "N"],
    known: Tensor,
    names: list[str],
    ids: list[str],
    shown: int,
) -> tuple[Suspect, ...]:
    """Samples with the most evidence against their label; ``known`` and ``names`` are those of classes."""
    evidence = explained.evidence.nan_to_num(-torch.inf)
    strongest, rows = evidence.sort(descending=True, stable=True)
    rows = rows[strongest > 0][:shown]
    listed = []
    for row in rows.tolist():
        own, other = int(labels[row]), int(explained.other[row])
        listed.append(
            Suspect(
                row=row,
                id=ids[row],
                label=int(known[own]),
                name=names[own],
                distance=float(explained.distance[row]),
                other_label=int(known[other]),
                other_name=names[other],
                other_distance=float(explained.other_distance[row]),
                evidence=float(explained.evidence[row]),
            )
        )
    return tuple(listed)


def _fit(gap: Float[Tensor, "*b D"], variance: Float[Tensor, "*b D"]) -> tuple[Tensor, Tensor]:
    """Distance in standard deviations, and log-likelihood per dimension up to a constant.

    It is the largest over all factors of the variance, which is that of the factor ``square``.
    """
    square = (gap.square() / variance).mean(-1).clamp(min=1e-12)
    return square.sqrt(), -(square.log() + variance.log().mean(-1)) / 2
