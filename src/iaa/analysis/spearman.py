"""Rank correlation of mean and covariance distances between classes (Eq. 9-10), and its value by chance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    ranked = stats.take((stats.count >= min_samples).nonzero().flatten())
    if len(ranked.count) < 3:
        return float("nan")
    return float(coefficients(ranked, [(p, squared, root)]).nanmean())


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


@dataclass(frozen=True)
class Permutations:
    """The coefficient when covariances are assigned to classes at random (p = 2, the paper's metrics)."""

    draws: int
    classes: int
    """Classes that took part; an even sample if there are very many."""
    observed: float
    """The coefficient of these classes with their own covariances."""
    mean: float
    deviation: float
    p_value: float
    """Share of the draws, the real one included, with a coefficient at least as large; one-sided."""


@torch.no_grad()
def permutations(stats: ClassStats, *, draws: int = 999, seed: int = 0) -> Permutations:
    """The coefficient (p = 2) when it is chance which covariance belongs to which class.

    A Mantel test: with centred and normalised ranks A and B, whose diagonals are 0, the coefficient is the
    sum of A * B over classes, and a permutation of classes only reorders B. All classes given take part.
    """
    check_whole("draws", draws, least=1)
    number = len(stats.count)
    by_mean, by_cov = (_standardized(values) for values in (stats.mean.square(), stats.variance))
    generator = torch.Generator().manual_seed(seed)
    observed = float((by_mean * by_cov).sum() / number)
    permuted = torch.empty(draws, dtype=torch.float64)
    for draw in range(draws):
        order = torch.randperm(number, generator=generator).to(by_cov.device)
        permuted[draw] = (by_mean * by_cov[order][:, order]).sum() / number
    at_least = int((permuted >= observed - 1e-9).sum())
    mean, deviation = float(permuted.mean()), float(permuted.std()) if draws > 1 else 0.0
    return Permutations(draws, number, observed, mean, deviation, (at_least + 1) / (draws + 1))


def _standardized(values: Float[Tensor, "C D"]) -> Float[Tensor, "C C"]:
    """Ranks of each class's distances to the others, centred and of length 1; its own entry is 0."""
    number = len(values)
    rows = torch.arange(number, device=values.device)
    ranked = ranks(distances(values, rows, 2))
    centred = ranked - ranked.mean(1, keepdim=True)
    length = centred.norm(dim=1, keepdim=True)
    unit = torch.where(length > 0, centred / length, 0)  # all distances equal: nothing to rank
    return unit.new_zeros(number, number).scatter_(1, others(rows, number), unit).float()
