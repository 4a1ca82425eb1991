"""How much classes differ in their variation (Fig. 5), and how much each borrows by its size (Fig. 9a)."""

from collections.abc import Sequence
from dataclasses import dataclass

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
        return sum(found > chance for found, chance in pairs) / max(1, len(self.labels))


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


def variety(stats: ClassStats, *, p: float = 2) -> Variety:
    """Distance of each class's variance to the global one (Eq. 10, 14), and what chance would give."""
    raise NotImplementedError


def weights(
    *, falloffs: Sequence[float] = (0.01, 0.05, 0.1, 0.5, 1.0), few: float = 40, most: int = 60
) -> Weights:
    """alpha for classes of 1 to ``most`` samples, a curve for every falloff (Eq. 16)."""
    raise NotImplementedError
