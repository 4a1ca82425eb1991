"""The correlation discovery: all metrics, curves, a permutation baseline, a verdict (Sec. IV-B, VI-C)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from iaa.analysis.correction_advice import HeldOut, Verdict, held_out, judge
from iaa.analysis.spearman import Permutations, coefficients, distances, permutations
from iaa.method.checks import check_whole
from iaa.method.gaussians import ClassStats, estimate

PAIRS = ((True, False), (False, False), (True, True), (False, True))
"""The four pairs of metrics in the order of Table VIII: means squared or not, variances as roots or not."""
POWERS = (1, 2, 3, 4)
PAPER = (2, True, False)
"""What neighbour correction uses: the Euclidean distance of squared means, of variances."""
COMPARED = 1024
"""Most classes whose distances are ranked and covariances permuted; of more, an even sample."""
POINTS = 200
"""Most points of a curve."""


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
class Curve:
    """Distances of one class to all others, those of the means in descending order (Fig. 3, 4).

    At most 200 points, evenly spaced along the order; distances scaled to [0, 1] within the class.
    """

    label: int | None
    """None for the average over all classes."""
    name: str
    coefficient: float
    position: tuple[float, ...]
    """Position in the order, from 0 (farthest mean) to 1 (nearest)."""
    mean_distance: tuple[float, ...]
    cov_distance: tuple[float, ...]


@dataclass(frozen=True)
class Correlation:
    """How mean and covariance distances are correlated, with all evidence."""

    classes: int
    """Classes with ``min_samples`` samples or more; the others are left out."""
    compared: int
    """Classes that were ranked: all of them up to 1,024, else an even sample."""
    left_out: int
    min_samples: int
    samples: tuple[int, int, int]
    """Fewest, median and most samples of the classes that take part."""
    dim: int
    coefficients: tuple[Coefficient, ...]
    """p = 1, 2, 3, 4 for each of the four pairs of metrics, the paper's pair first."""
    quartiles: tuple[float, float, float]
    """Quartiles of the single classes' coefficients (p = 2, the paper's metrics)."""
    shape: float
    """The same with scale removed: squared means and variances divided by their sums, class by class."""
    permutations: Permutations
    held_out: HeldOut | None
    average: Curve
    examples: tuple[Curve, ...]
    """Classes with a low, a middling and a high coefficient (10, 50, 90 % of them are below)."""
    few: float
    """Classes of more samples borrow nothing (Eq. 16)."""
    borrowing: int
    """Classes of at most ``few`` samples."""
    verdict: Verdict = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "verdict", judge(self))

    def value(self, *, p: float = 2, squared: bool = True, root: bool = False) -> float:
        """The coefficient of one pair of metrics."""
        wanted = (p, squared, root)
        return next(item.value for item in self.coefficients if (item.p, item.squared, item.root) == wanted)


@torch.no_grad()
def correlation(
    z: Float[Tensor, "N D"],
    labels: Integer[Tensor, "N"],
    *,
    names: dict[int, str] | None = None,
    min_samples: int = 2,
    draws: int = 999,
    compared: int = COMPARED,
    seed: int = 0,
    tick: Callable[[float], None] = lambda done: None,
    **correction: Any,
) -> Correlation:
    """Everything of Sec. IV-B and VI-C for un-normalised embeddings, in blocks of classes.

    ``correction`` are the options of ``iaa.correct``, for what is said of borrowing; ``tick`` is called with
    the share done.
    """
    check_whole("min_samples", min_samples, least=2)
    known, inverse = labels.unique(return_inverse=True)
    stats = estimate(z, inverse, num_classes=len(known))
    large = (stats.count >= min_samples).nonzero().flatten()
    if len(large) < 3:
        raise ValueError(
            f"a correlation needs at least 3 classes of {min_samples} samples or more, got {len(large)} "
            f"of {len(known)} classes"
        )
    taken = _even(large, compared)
    ranked = stats.take(taken)
    metrics = [(p, squared, root) for squared, root in PAIRS for p in POWERS]
    values = coefficients(ranked, metrics, tick=lambda done: tick(0.8 * done))
    single = values[metrics.index(PAPER)]
    shape = float(coefficients(_without_scale(ranked), [PAPER])[0].nanmean())
    permuted = permutations(stats.take(_even(taken, COMPARED)), draws=draws, seed=seed)
    tick(0.9)
    splits = 5 if len(large) <= COMPARED else 1  # over so many classes chance averages out
    halves = held_out(z, inverse, num_classes=len(known), splits=splits, seed=seed, **correction)
    average, examples = _curves(ranked, single, known[taken], names or {})
    count = stats.count[large].sort().values
    samples = (int(count[0]), int(count[len(count) // 2]), int(count[-1]))
    few = float(correction.get("few", 40))
    tick(1.0)
    means = tuple(
        Coefficient(p, squared, root, float(value.nanmean()))
        for (p, squared, root), value in zip(metrics, values, strict=True)
    )
    low, middle, high = single.nanquantile(single.new_tensor([0.25, 0.5, 0.75])).tolist()
    return Correlation(
        classes=len(large),
        compared=len(taken),
        left_out=len(known) - len(large),
        min_samples=min_samples,
        samples=samples,
        dim=z.shape[1],
        coefficients=means,
        quartiles=(low, middle, high),
        shape=shape,
        permutations=permuted,
        held_out=halves,
        average=average,
        examples=examples,
        few=few,
        borrowing=int((stats.count[large] <= few).sum()),
    )


def _without_scale(stats: ClassStats) -> ClassStats:
    """Squared means and variances that sum to 1 in every class: what is left is how they are spread."""
    square = stats.mean.square()
    mean = (square / square.sum(1, keepdim=True).clamp(min=1e-30)).sqrt()
    variance = stats.variance / stats.variance.sum(1, keepdim=True).clamp(min=1e-30)
    return ClassStats(stats.count, mean, variance)


def _curves(
    stats: ClassStats, single: Float[Tensor, "C"], labels: Tensor, names: dict[int, str]
) -> tuple[Curve, tuple[Curve, ...]]:
    """The average over all classes, and three classes: of low, median and high coefficient."""
    number = len(stats.count)
    at = torch.linspace(0, number - 2, min(POINTS, number - 1), dtype=torch.float64).round().long()
    position = tuple((at / max(1, number - 2)).tolist())
    total = torch.zeros(2, len(at), dtype=torch.float64)
    for rows in torch.arange(number).split(max(1, 2**22 // number)):
        total += _along(stats, rows, at).sum(1)
    average = Curve(None, "average", float(single.nanmean()), position, *_numbers(total / number))
    order = single.nan_to_num(-1).argsort(stable=True)
    chosen = order[[round(share * (number - 1)) for share in (0.1, 0.5, 0.9)]]
    along = _along(stats, chosen, at)
    examples = []
    for number, row in enumerate(chosen.tolist()):
        label = int(labels[row])
        name = names.get(label, str(label))
        examples.append(Curve(label, name, float(single[row]), position, *_numbers(along[:, number])))
    return average, tuple(examples)


def _along(stats: ClassStats, rows: Tensor, at: Tensor) -> Float[Tensor, "2 B P"]:
    """Both distances in the descending order of the first, each scaled to [0, 1] within its class."""
    by_mean = distances(stats.mean.square(), rows, 2).double()
    by_cov = distances(stats.variance, rows, 2).double()
    ordered, order = by_mean.sort(dim=1, descending=True, stable=True)
    curves = torch.stack([ordered, by_cov.gather(1, order)])
    low, high = curves.aminmax(dim=2, keepdim=True)
    span = high - low
    return ((curves - low) / span.where(span > 0, 1))[:, :, at]


def _numbers(curves: Float[Tensor, "2 P"]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(curves[0].tolist()), tuple(curves[1].tolist())


def _even(classes: Tensor, most: int) -> Tensor:
    """All of them, or ``most`` evenly spaced ones."""
    if len(classes) <= most:
        return classes
    return classes[torch.linspace(0, len(classes) - 1, most, dtype=torch.float64).round().long()]
