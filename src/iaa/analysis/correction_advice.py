"""Can neighbour correction be expected to help on this data? A verdict with its evidence.

The main evidence: variances estimated from one half of each class, compared with those of its other half.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from iaa.method.correction import correct, global_variance
from iaa.method.gaussians import estimate
from iaa.retrieval.ranking import rank_within_class

if TYPE_CHECKING:
    from iaa.analysis.correlation import Correlation

Level = Literal["strong", "weak", "none", "unknown"]

STRONG, WEAK = 0.5, 0.2
"""Smallest coefficients of a strong and of a weak correlation; the paper's are between 0.43 and 0.94."""
FEWEST_CLASSES = 10
"""With fewer classes a rank correlation means nothing."""
MARGIN = 0.05
"""Share by which an error must be below another to count as smaller."""
LEVEL = 0.05
"""Largest p-value of a correlation that is not put down to chance."""
FEWEST = 4
"""Samples a class needs so that each of its halves has a variance."""


@dataclass(frozen=True)
class HeldOut:
    """How far variances estimated from half of each class are from those of the other half.

    Errors are squared distances between variances, summed over classes and divided by the squared length of
    the held-out variances: 0 is perfect. The noise of the held-out half is the same in all of them.
    """

    classes: int
    """Classes with four samples or more."""
    samples: float
    """Median number of samples that a class's variance was estimated from."""
    own: float
    """Error of the class's own variance."""
    neighbors: float
    """Error of what its neighbours lend, alone (Eq. 12)."""
    corrected: float
    """Error of the corrected variance (Eq. 15)."""
    pooled: float
    """Error when corrected as much, but towards the global variance: the effect without neighbours."""
    overall: float
    """Error of the global variance (Eq. 14)."""
    closer: float
    """Share of the classes whose corrected variance is closer to the held-out one than their own: 0 to 1."""


@torch.no_grad()
def held_out(
    z: Float[Tensor, "N D"],
    labels: Integer[Tensor, "N"],
    *,
    num_classes: int,
    splits: int = 5,
    seed: int = 0,
    **correction: Any,
) -> HeldOut | None:
    """Split every class in two at random and compare; None with fewer than three classes of four samples.

    Averages over ``splits`` such halvings. ``correction`` are the options of ``iaa.correct``; whatever its
    ``few``, all classes borrow here, since the question is whether they should.
    """
    labels = labels.long()
    count = torch.bincount(labels, minlength=num_classes)
    scored = (count >= FEWEST).nonzero().flatten()
    if len(scored) < 3:
        return None
    generator = torch.Generator().manual_seed(seed)
    options = {**correction, "few": torch.inf}
    alone = {**options, "falloff": 0.0, "global_share": 0.0}  # alpha = 1: nothing of the class's own
    rounds = []
    for _ in range(splits):
        first = _first_half(labels, count, generator)
        stats = estimate(z[first], labels[first], num_classes=num_classes)
        rest = estimate(z[~first], labels[~first], num_classes=num_classes).take(scored)
        size = rest.count[:, None].to(rest.variance.dtype)
        truth = rest.variance * size / (size - 1)  # unbiased: what every estimate aims at
        estimates = (
            stats.variance[scored],
            correct(stats, classes=scored, **alone),
            correct(stats, classes=scored, **options),
            correct(stats, classes=scored, **{**options, "global_share": 1.0}),
            global_variance(stats).expand(len(scored), -1),
        )
        errors = torch.stack([(variance - truth).double().square().sum(1) for variance in estimates])
        closer = (errors[2] < errors[0]).double().mean()
        rounds.append(
            torch.cat([errors.sum(1) / truth.double().square().sum().clamp(min=1e-30), closer[None]])
        )
    own, neighbors, corrected, pooled, overall, share = torch.stack(rounds).mean(0).tolist()
    samples = float((count[scored] + 1).div(2, rounding_mode="floor").double().median())
    return HeldOut(len(scored), samples, own, neighbors, corrected, pooled, overall, share)


def _first_half(
    labels: Int[Tensor, "N"], count: Int[Tensor, "C"], generator: torch.Generator
) -> Bool[Tensor, "N"]:
    """Every other sample of each class in random order, the larger half; all of a class too small."""
    shuffled = torch.randperm(len(labels), generator=generator).to(labels.device)
    rank = torch.empty_like(shuffled)
    rank[shuffled] = rank_within_class(labels[shuffled])
    return (rank % 2 == 0) | (count[labels] < FEWEST)


@dataclass(frozen=True)
class Verdict:
    """Whether similar means go with similar covariances, and what follows for neighbour correction."""

    level: Level
    """The correlation: strong, weak, none, or unknown if there are too few classes."""
    helps: bool | None
    """Whether corrected variances were closer to held-out samples than the classes' own; None: not tested."""
    text: str
    """One paragraph for a reader."""
    rests_on: tuple[str, ...]
    """The numbers behind it, a sentence each."""


def judge(result: "Correlation") -> Verdict:
    """Put the numbers of a correlation analysis into words."""
    coefficient, classes, held_out = result.value(), result.classes, result.held_out
    permuted, p_value = result.permutations, result.permutations.p_value
    level = _level(coefficient, p_value, classes)
    finding = _finding(level, significant=p_value <= LEVEL)
    helps = None if held_out is None else held_out.corrected < (1 - MARGIN) * held_out.own
    evidence = [f"Spearman coefficient {coefficient:.2f}, mean over {classes:,} classes (p = 2, Eq. 9-10)."]
    if level != "unknown":
        by_chance = f"{round(permuted.mean, 2) + 0.0:.2f} ± {permuted.deviation:.2f}"
        evidence.append(
            f"With covariances assigned to classes at random it is {by_chance} (one-sided p = {p_value:.3g})."
        )
        evidence.append(_scale(coefficient, result.shape))
    evidence += _noise(result.samples)
    if held_out is not None:
        evidence.append(
            f"From half of each class (median {held_out.samples:.0f} samples), compared with the other half: "
            f"error {held_out.own:.2f} of the own variance, {held_out.corrected:.2f} corrected, "
            f"{held_out.pooled:.2f} corrected towards the global one, {held_out.neighbors:.2f} of the "
            f"neighbours' alone, {held_out.overall:.2f} of the global one alone; "
            f"corrected is closer in {100 * held_out.closer:.0f} % of {held_out.classes:,} classes."
        )
    borrowing = f"{result.borrowing:,} of {classes:,} classes have at most {result.few:g} samples"
    evidence.append(f"{borrowing} and so borrow at all.")
    text = f"{finding} {_advice(level, helps, held_out, result.borrowing, result.few)}"
    return Verdict(level, helps, text, tuple(evidence))


def _level(coefficient: float, p_value: float, classes: int) -> Level:
    if classes < FEWEST_CLASSES or math.isnan(coefficient):
        return "unknown"
    if p_value > LEVEL or coefficient < WEAK:
        return "none"
    return "strong" if coefficient >= STRONG else "weak"


def _finding(level: Level, *, significant: bool) -> str:
    if level == "none" and significant:
        return "Next to no correlation: more than chance, yet too small to rely on similar means."
    return {
        "strong": "Strong correlation: classes with similar means have similar variances here.",
        "weak": "Weak correlation: classes with similar means have somewhat more similar variances.",
        "none": "No correlation to rely on: similar means say little or nothing about variances here.",
        "unknown": f"Too few classes with enough samples to tell (at least {FEWEST_CLASSES} are needed).",
    }[level]


def _advice(level: Level, helps: bool | None, held_out: HeldOut | None, borrowing: int, few: float) -> str:
    if held_out is None or helps is None:
        advice = "Classes have too few samples to hold some out: whether borrowing helps was not tested."
    elif not helps:
        advice = (
            "On held-out samples, corrected variances were no closer than the classes' own: do not expect "
            "neighbour correction to help classes of this size."
        )
    else:
        errors = (held_out.corrected, held_out.pooled)
        gain, pooling = (100 * (1 - error / held_out.own) for error in errors)
        advice = f"On held-out samples, correction lowered the error of the variances by {gain:.0f} %, "
        if held_out.corrected > (1 - MARGIN) * held_out.pooled:
            advice += (
                f"but so did the global variance in place of the neighbours' (by {pooling:.0f} %): pooling "
                "helps classes of this size; that similar classes lend matters little."
            )
        else:
            advice += (
                f"the global variance in place of the neighbours' by {pooling:.0f} %: neighbour correction "
                "can be expected to improve the estimates of classes of this size."
            )
    if borrowing == 0:
        advice += f" As configured it changes nothing: no class has {few:g} samples or fewer."
    if level != "unknown":
        advice += " Better estimates need not mean better retrieval: `iaa ablate few-samples` measures that."
    return advice


def _scale(coefficient: float, shape: float) -> str:
    without_scale = (
        f"With scale removed (each class's squared mean and variance divided by its sum) it is {shape:.2f}"
    )
    if coefficient >= WEAK and shape < coefficient / 2:
        return f"{without_scale}: most of it is scale, as classes with large means have large variances."
    return (
        f"{without_scale}: that part is not the overall size of a class. A variance that follows the mean "
        "in every dimension, as behind a ReLU, is still in it."
    )


def _noise(samples: tuple[int, int, int]) -> list[str]:
    least, median, most = samples
    if median < 2:
        return []
    off = 100 * math.sqrt(2 / (median - 1))
    span = f"{least} to {most} samples, median {median}" if least < most else f"{least} samples each"
    error = f"Classes have {span}: a variance estimated from these is off by about {off:.0f} %"
    if off > 50:
        return [f"{error} and mostly noise, which lowers the coefficient whatever the truth."]
    return [f"{error} (for normal data)."]
