"""The coefficient by chance: covariances assigned to classes at random."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from iaa.analysis.spearman import distances, others, ranks
from iaa.method.checks import check_whole
from iaa.method.gaussians import ClassStats


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
    drawn = torch.empty(draws, dtype=torch.float64)
    for draw in range(draws):
        order = torch.randperm(number, generator=generator).to(by_cov.device)
        drawn[draw] = (by_mean * by_cov[order][:, order]).sum() / number
    at_least = int((drawn >= observed - 1e-9).sum())
    deviation = float(drawn.std()) if draws > 1 else 0.0
    return Permutations(draws, number, observed, float(drawn.mean()), deviation, (at_least + 1) / (draws + 1))


def _standardized(values: Float[Tensor, "C D"]) -> Float[Tensor, "C C"]:
    """Ranks of each class's distances to the others, centred and of length 1; its own entry is 0."""
    number = len(values)
    rows = torch.arange(number, device=values.device)
    ranked = ranks(distances(values, rows, 2))
    centred = ranked - ranked.mean(1, keepdim=True)
    length = centred.norm(dim=1, keepdim=True)
    unit = torch.where(length > 0, centred / length, 0)  # all distances equal: nothing to rank
    return unit.new_zeros(number, number).scatter_(1, others(rows, number), unit).float()
