"""Class-wise Gaussians: their estimation (Eq. 7-8), their merging, the distances between them (Eq. 9-10)."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Integer, Num
from torch import Tensor

from iaa.method.checks import (
    Array,
    as_tensor,
    check_batch,
    check_number,
    check_whole,
    largest_magnitude,
)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class ClassStats:
    """One Gaussian with diagonal covariance per class; a class never seen has count, mean and variance 0."""

    count: Num[Tensor, "C"]
    mean: Float[Tensor, "C D"]
    variance: Float[Tensor, "C D"]

    def merge(self, other: "ClassStats") -> "ClassStats":
        """Statistics of the union of two disjoint sets of samples, exact but for rounding.

        >>> z, labels = torch.randn(9, 2), torch.arange(9) % 3
        >>> part, rest = (estimate(z[s], labels[s], num_classes=3) for s in (slice(0, 5), slice(5, 9)))
        >>> whole = estimate(z, labels, num_classes=3)
        >>> torch.allclose(part.merge(rest).variance, whole.variance, atol=1e-6)
        True
        """
        if self.mean.shape != other.mean.shape:
            raise ValueError(
                f"statistics to merge must agree in (classes, dimensions), "
                f"got {tuple(self.mean.shape)} and {tuple(other.mean.shape)}"
            )
        count = self.count + other.count
        share = (other.count / count.clamp(min=1e-30)).to(self.mean.dtype)[:, None]
        shift = other.mean - self.mean
        mean = self.mean + share * shift
        between = share * (1 - share) * shift.square()
        variance = (1 - share) * self.variance + share * other.variance + between
        seen = (count > 0)[:, None]
        return ClassStats(count, mean.where(seen, 0), variance.where(seen, 0))

    def take(self, classes: Int[Tensor, "Q"]) -> "ClassStats":
        """The statistics of some classes, in the order given."""
        return ClassStats(self.count[classes], self.mean[classes], self.variance[classes])

    def to(self, *args: Any, **kwargs: Any) -> "ClassStats":
        """Mean and variance on another device or in another precision, like ``Tensor.to``."""
        mean = self.mean.to(*args, **kwargs)
        return replace(
            self, count=self.count.to(mean.device), mean=mean, variance=self.variance.to(*args, **kwargs)
        )


def unaffected_by_autocast(function: Callable[P, R]) -> Callable[P, R]:
    """Statistics keep their precision within ``torch.autocast``, which would round matrix products."""

    @functools.wraps(function)
    def in_full_precision(*args: P.args, **kwargs: P.kwargs) -> R:
        given = (*args, *kwargs.values())
        tensors = [value.mean if isinstance(value, ClassStats) else value for value in given]
        device = next((value.device.type for value in tensors if isinstance(value, Tensor)), "cpu")
        with torch.autocast(device, enabled=False):
            return function(*args, **kwargs)

    return in_full_precision


@unaffected_by_autocast
def estimate(
    z: Float[Tensor, "N D"] | Array, labels: Integer[Tensor, "N"] | Array, *, num_classes: int
) -> ClassStats:
    """Mean and diagonal covariance of each class by maximum likelihood (Eq. 7-8).

    Sums run in float32 or better, whatever the precision of ``z``. Two passes, so that a large mean
    does not eat a small variance.
    """
    check_whole("num_classes", num_classes, least=1)
    z, labels = as_tensor("z", z), as_tensor("labels", labels)
    labels = check_batch(z, labels, num_classes=num_classes)
    z = z.to(torch.promote_types(z.dtype, torch.float32))
    count = torch.bincount(labels, minlength=num_classes)
    by_class = labels.argsort(stable=True)
    starts = count.cumsum(0) - count
    size = count.clamp(min=1).to(z.dtype)[:, None]
    mean = F.embedding_bag(by_class, z, starts, mode="sum") / size  # Eq. 7
    squares = (z - mean[labels]).square()
    variance = F.embedding_bag(by_class, squares, starts, mode="sum") / size  # Eq. 8, its diagonal
    if not bool(variance.isfinite().all()):
        largest = float(z.detach().abs().max())
        raise ValueError(
            f"z is too large: its squares overflow {_name(z)} (largest {largest:.3g}), scale it down"
        )
    return ClassStats(count, mean, variance)


def check_stats(stats: ClassStats) -> ClassStats:
    """The statistics in float32 or better, unless they are something else or not finite."""
    if not isinstance(stats, ClassStats):
        raise TypeError(f"stats must be ClassStats, as iaa.estimate makes them, got {type(stats).__name__}")
    for name, values in (("count", stats.count), ("mean", stats.mean), ("variance", stats.variance)):
        if not math.isfinite(largest_magnitude(values)):
            rows = (~values.isfinite()).reshape(len(values), -1).any(1).nonzero().flatten()
            raise ValueError(
                f"stats must be finite, got NaN or infinity in the {name} of class {int(rows[0])}"
            )
    return stats.to(torch.promote_types(stats.mean.dtype, torch.float32))


def in_range(rows: Float[Tensor, "C D"]) -> tuple[Float[Tensor, "C D"], float]:
    """Rows divided by a power of two, and that number: 1 unless fourth powers would leave float32's range.

    Distances between squares of 1e-12 or 1e10 would underflow or overflow; a power of two rounds nothing.
    """
    largest = largest_magnitude(rows)
    if largest == 0 or 2.0**-20 <= largest <= 2.0**20:
        return rows, 1.0
    divisor = 2.0 ** math.frexp(largest)[1]
    return rows / divisor, divisor


def mean_distance(stats: ClassStats, *, p: float = 2, squared: bool = True) -> Float[Tensor, "C C"]:
    """Distance between the means of all classes, ``squared`` element by element first (Eq. 9)."""
    check_number("p", p, least=1)
    mean, divisor = in_range(check_stats(stats).mean)
    if squared:
        mean, divisor = mean.square(), divisor**2
    return _distance(mean, p, divisor)  # Eq. 9


def cov_distance(stats: ClassStats, *, p: float = 2, root: bool = False) -> Float[Tensor, "C C"]:
    """Distance between the diagonal covariances of all classes, or between their square roots (Eq. 10)."""
    check_number("p", p, least=1)
    stats = check_stats(stats)
    variance, divisor = in_range(stats.variance.sqrt() if root else stats.variance)
    return _distance(variance, p, divisor)  # Eq. 10


def _distance(rows: Float[Tensor, "C D"], p: float, factor: float) -> Float[Tensor, "C C"]:
    # The quick form by matrix product loses small distances: equal classes must be at distance 0.
    distance = torch.cdist(rows, rows, p=p, compute_mode="donot_use_mm_for_euclid_dist") * factor
    if not bool(distance.isfinite().all()):
        raise ValueError(f"the distances between classes overflow {_name(rows)}: scale the embeddings down")
    return distance


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
