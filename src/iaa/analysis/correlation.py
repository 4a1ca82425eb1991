"""The correlation discovery: similar means, similar covariances? (Sec. IV-B, Tables I and VIII)"""

import torch
from jaxtyping import Float
from torch import Tensor

from iaa.method.checks import check_number, check_whole
from iaa.method.gaussians import ClassStats

BLOCK = 2**22
"""Distances held at a time."""


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
    kept = stats.take((stats.count >= min_samples).nonzero().flatten())
    mean = kept.mean.square() if squared else kept.mean
    variance = kept.variance.sqrt() if root else kept.variance
    number = len(mean)
    if number < 3:
        return float("nan")
    coefficients = []
    for rows in torch.arange(number, device=mean.device).split(max(1, BLOCK // number)):
        others = torch.arange(number - 1, device=mean.device).expand(len(rows), -1)
        others = others + (others >= rows[:, None])  # every class but itself
        d_mean, d_cov = (
            torch.cdist(values[rows], values, p=p, compute_mode="donot_use_mm_for_euclid_dist").gather(
                1, others
            )
            for values in (mean, variance)
        )
        coefficients.append(_correlation(_ranks(d_mean), _ranks(d_cov)))
    return float(torch.cat(coefficients).nanmean())


def _ranks(values: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """Ranks within each row, from 1; equal values share their average rank."""
    values = values.contiguous()
    ordered = values.sort(dim=1).values
    first, last = (torch.searchsorted(ordered, values, right=right) for right in (False, True))
    return (first + last + 1).double() / 2


def _correlation(a: Float[Tensor, "B N"], b: Float[Tensor, "B N"]) -> Float[Tensor, "B"]:
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    lengths: Tensor = a.norm(dim=1) * b.norm(dim=1)
    return (a * b).sum(1) / lengths
