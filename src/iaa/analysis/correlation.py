"""The correlation discovery: similar means, similar covariances? (Sec. IV-B, Tables I and VIII)"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from iaa.analysis.borrowing import HeldOut
from iaa.analysis.verdict import Verdict
from iaa.method.checks import check_number, check_whole
from iaa.method.gaussians import ClassStats

BLOCK = 2**22
"""Distances held at a time."""


@dataclass(frozen=True)
class Coefficient:
    """The Spearman coefficient of one pair of metrics (Tables I and VIII)."""

    p: float
    squared: bool
    """Means squared element by element before their distance (Eq. 9)."""
    root: bool
    """Square roots of the variances before their distance (Eq. 10 has none)."""
    value: float
    """Mean over classes, in [-1, 1]."""


@dataclass(frozen=True)
class Permutations:
    """The coefficient when covariances are dealt out to classes at random (p = 2, the paper's metrics)."""

    draws: int
    classes: int
    """Classes that took part; of very many an even sample."""
    observed: float
    """The coefficient of these classes with their own covariances."""
    mean: float
    deviation: float
    p_value: float
    """Share of the draws, the real one included, with a coefficient at least as large; one-sided."""


@dataclass(frozen=True)
class Curve:
    """Distances of one class to all others, those of the means in descending order (Fig. 3, 4).

    At most 200 points, evenly spaced along the order; distances scaled to [0, 1] within the class.
    """

    label: int | None
    """None for the average over all classes."""
    name: str
    coefficient: float
    position: tuple[float, ...]
    """Place in the order, from 0 (farthest mean) to 1 (nearest)."""
    mean_distance: tuple[float, ...]
    cov_distance: tuple[float, ...]


@dataclass(frozen=True)
class Correlation:
    """All that is known of how mean and covariance distances go together."""

    classes: int
    """With more than ``min_samples`` samples; all others are left out."""
    left_out: int
    min_samples: int
    samples: tuple[int, int, int]
    """Fewest, median and most samples of the classes that take part."""
    dim: int
    coefficients: tuple[Coefficient, ...]
    """p = 1, 2, 3, 4 for each of the four pairs of metrics, the paper's pair first."""
    quartiles: tuple[float, float, float]
    """Of the single classes' coefficients (p = 2, the paper's metrics)."""
    shape: float
    """The same with scale removed: squared means and variances divided by their sums, class by class."""
    permutations: Permutations
    held_out: HeldOut | None
    average: Curve
    examples: tuple[Curve, ...]
    """Classes with a low, a middling and a high coefficient (10, 50, 90 % of them are below)."""
    verdict: Verdict

    def value(self, *, p: float = 2, squared: bool = True, root: bool = False) -> float:
        """The coefficient of one pair of metrics."""
        wanted = (p, squared, root)
        return next(one.value for one in self.coefficients if (one.p, one.squared, one.root) == wanted)


def correlation(
    z: Float[Tensor, "N D"],
    labels: Integer[Tensor, "N"],
    *,
    names: dict[int, str] | None = None,
    min_samples: int = 1,
    ps: Sequence[float] = (1, 2, 3, 4),
    draws: int = 999,
    seed: int = 0,
    tick: Callable[[float], None] = lambda done: None,
    **correction: Any,
) -> Correlation:
    """Everything of Sec. IV-B and VI-C for un-normalised embeddings, in blocks of classes."""
    raise NotImplementedError


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
