"""Rank correlation of two kinds of distances between classes, block by block (Eq. 9-10)."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from iaa.method.checks import check_number, check_whole
from iaa.method.gaussians import ClassStats, check_stats, in_range

BLOCK = 2**22
"""Distances held at a time."""

Metric = tuple[float, bool, bool]
"""p; whether means are squared; whether variances are rooted."""


@torch.no_grad()
def spearman(
    stats: ClassStats, *, p: float = 2, squared: bool = True, root: bool = False, min_samples: int = 2
) -> float:
    """Rank correlation of a class's mean and covariance distances to all others, averaged over classes.

    Distances are those of ``iaa.mean_distance`` and ``iaa.cov_distance`` (Eq. 9-10). Only classes with
    ``min_samples`` samples or more take part; nan if no class can be ranked.
    """
    check_number("p", p, least=1)
    check_whole("min_samples", min_samples, least=1)
    stats = check_stats(stats)
    kept = stats.take((stats.count >= min_samples).nonzero().flatten())
    if len(kept.count) < 3:
        return float("nan")
    return float(coefficients(kept, [(p, squared, root)]).nanmean())


@torch.no_grad()
def coefficients(
    stats: ClassStats, metrics: Sequence[Metric], *, tick: Callable[[float], None] = lambda done: None
) -> Float[Tensor, "M C"]:
    """The coefficient of every class under every pair of metrics; nan where all distances are equal."""
    number = len(stats.count)
    mean, variance = in_range(stats.mean)[0], in_range(stats.variance)[0]  # ranks do not depend on scale
    means = {True: mean.square(), False: mean}
    covs = {True: variance.sqrt(), False: variance}
    table = stats.mean.new_empty(len(metrics), number, dtype=torch.float64)
    for rows in torch.arange(number, device=stats.mean.device).split(max(1, BLOCK // number)):
        for p in {metric[0] for metric in metrics}:
            of_means = {q: ranks(distances(means[q], rows, p)) for q in {m[1] for m in metrics if m[0] == p}}
            of_covs = {r: ranks(distances(covs[r], rows, p)) for r in {m[2] for m in metrics if m[0] == p}}
            for column, (power, squared, root) in enumerate(metrics):
                if power == p:
                    table[column, rows] = _correlation(of_means[squared], of_covs[root])
        tick(float(rows[-1] + 1) / number)
    return table


def distances(values: Float[Tensor, "C D"], rows: Int[Tensor, "B"], p: float) -> Float[Tensor, "B N"]:
    """From some classes to every class but itself; differences, so that equal classes are at distance 0."""
    exact = "donot_use_mm_for_euclid_dist"
    return torch.cdist(values[rows], values, p=p, compute_mode=exact).gather(1, others(rows, len(values)))


def others(rows: Int[Tensor, "B"], number: int) -> Int[Tensor, "B N"]:
    """For each of some classes all classes but itself, in order."""
    columns = torch.arange(number - 1, device=rows.device).expand(len(rows), -1)
    return columns + (columns >= rows[:, None])


def ranks(values: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """Ranks within each row, from 1; equal values share their average rank."""
    values = values.contiguous()
    ordered = values.sort(dim=1).values
    first, last = (torch.searchsorted(ordered, values, right=right) for right in (False, True))
    return (first + last + 1).double() / 2


def _correlation(a: Float[Tensor, "B N"], b: Float[Tensor, "B N"]) -> Float[Tensor, "B"]:
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    lengths: Tensor = a.norm(dim=1) * b.norm(dim=1)
    return (a * b).sum(1) / lengths
