"""How much classes differ in their variation (Fig. 5), and how much each borrows by its size (Fig. 9a)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from iaa.method.checks import check_whole
from iaa.method.correction import correction_weight, global_variance
from iaa.method.gaussians import ClassStats


@dataclass(frozen=True)
class Variety:
    """Distance of every class covariance to the global one, all with two samples or more (Fig. 5)."""

    labels: tuple[int, ...]
    count: tuple[int, ...]
    distance: tuple[float, ...]
    """Norm of the difference of variances, over the norm of the global variance (no unit)."""
    expected: tuple[float, ...]
    """What sampling alone would give a class of this size whose true covariance were the global one."""
    left_out: int
    """Classes with a single sample."""

    @property
    def beyond(self) -> float:
        """Share of the classes that are farther than sampling alone explains, in [0, 1]."""
        pairs = zip(self.distance, self.expected, strict=True)
        return sum(distance > chance for distance, chance in pairs) / max(1, len(self.labels))


@dataclass(frozen=True)
class WeightCurve:
    """alpha over n for one beta."""

    falloff: float
    alpha: tuple[float, ...]


@dataclass(frozen=True)
class Weights:
    """The weight of the correction by class size (Eq. 16, Fig. 9a)."""

    count: tuple[int, ...]
    few: float
    curves: tuple[WeightCurve, ...]


def variety(stats: ClassStats, *, labels: Sequence[int] | None = None) -> Variety:
    """Distance of each class's variance to the global one (Eq. 10, 14), and what chance would give.

    By chance, a variance estimated from n normal samples has mean 1 - 1 / n and variance 2 (n - 1) / n^2, in
    units of the true one, and the global one has mean 1 - C / N. Classes are numbered if ``labels`` is None.
    """
    several = (stats.count >= 2).nonzero().flatten()
    overall = global_variance(stats).double()
    length = overall.norm().clamp(min=1e-30)
    n = stats.count[several].double()
    distance = (stats.variance[several].double() - overall).norm(dim=1) / length
    share = 1 - len(stats.count) / float(stats.count.sum())
    expected = (2 * (n - 1) / n.square() + (1 - 1 / n - share).square()).sqrt() / share
    all_labels = torch.arange(len(stats.count)) if labels is None else torch.as_tensor(labels)
    return Variety(
        labels=tuple(all_labels[several.cpu()].tolist()),
        count=tuple(map(int, n.tolist())),
        distance=tuple(distance.tolist()),
        expected=tuple(expected.tolist()),
        left_out=len(stats.count) - len(several),
    )


def weights(
    *, falloffs: Sequence[float] = (0.01, 0.05, 0.1, 0.5, 1.0), few: float = 40, most: int = 60
) -> Weights:
    """alpha for classes of 1 to ``most`` samples, a curve for every falloff (Eq. 16)."""
    check_whole("most", most, least=1)
    count = torch.arange(1, most + 1)
    curves = tuple(
        WeightCurve(falloff, tuple(correction_weight(count.double(), falloff=falloff, few=few).tolist()))
        for falloff in falloffs
    )
    return Weights(tuple(count.tolist()), few, curves)
