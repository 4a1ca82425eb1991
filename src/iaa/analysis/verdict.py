"""Can neighbour correction be expected to help on this data? In words, with what they rest on."""

import math
from dataclasses import dataclass
from typing import Literal

from iaa.analysis.holdout import HeldOut

Level = Literal["strong", "weak", "none", "unknown"]

STRONG, WEAK = 0.5, 0.2
"""Least coefficients of a strong and of a weak correlation; the paper's tables lie between 0.43 and 0.94."""
FEWEST_CLASSES = 10
"""With fewer classes a rank correlation says nothing."""
MARGIN = 0.05
"""Share by which an error must be smaller than another to count as smaller."""
LEVEL = 0.05
"""Largest p-value of a correlation that is not taken for chance."""


@dataclass(frozen=True)
class Verdict:
    """How far similar means go with similar covariances, and what follows for neighbour correction."""

    level: Level
    """Of the correlation: strong, weak, none, or unknown where there is too little to tell."""
    helps: bool | None
    """Whether corrected variances were nearer to held-out samples than the classes' own; None: not tested."""
    text: str
    """One paragraph for a reader."""
    rests_on: tuple[str, ...]
    """The numbers behind it, a sentence each."""


def judge(
    *,
    coefficient: float,
    shape: float,
    p_value: float,
    chance: tuple[float, float],
    classes: int,
    samples: tuple[int, int, int],
    borrowing: int,
    few: float,
    held_out: HeldOut | None,
) -> Verdict:
    """Put the numbers of a correlation analysis into words.

    ``chance`` is mean and deviation of the coefficient under permutation, ``samples`` the fewest, median and
    most of a class, ``borrowing`` how many classes have at most ``few`` samples.
    """
    level = _level(coefficient, p_value, classes)
    found = _found(level, significant=p_value <= LEVEL)
    helps = None if held_out is None else held_out.corrected < (1 - MARGIN) * held_out.own
    rests = [f"Spearman coefficient {coefficient:.2f}, mean over {classes:,} classes (p = 2, Eq. 9-10)."]
    if level != "unknown":
        dealt = f"{round(chance[0], 2) + 0.0:.2f} ± {chance[1]:.2f} (one-sided p = {p_value:.3g})"
        rests.append(f"With covariances dealt out to classes at random it is {dealt}.")
        rests.append(_scale(coefficient, shape))
    rests += _noise(samples)
    if held_out is not None:
        rests.append(
            f"From half of each class (median {held_out.samples:.0f} samples), held against the other half: "
            f"error {held_out.own:.2f} of the own variance, {held_out.corrected:.2f} corrected, "
            f"{held_out.pooled:.2f} corrected towards the global one, {held_out.neighbors:.2f} of the "
            f"neighbours' alone, {held_out.overall:.2f} of the global one alone; "
            f"corrected is nearer in {100 * held_out.closer:.0f} % of {held_out.classes:,} classes."
        )
    rests.append(f"{borrowing:,} of {classes:,} classes have at most {few:g} samples and so borrow at all.")
    return Verdict(level, helps, f"{found} {_advice(level, helps, held_out, borrowing, few)}", tuple(rests))


def _level(coefficient: float, p_value: float, classes: int) -> Level:
    if classes < FEWEST_CLASSES or math.isnan(coefficient):
        return "unknown"
    if p_value > LEVEL or coefficient < WEAK:
        return "none"
    return "strong" if coefficient >= STRONG else "weak"


def _found(level: Level, *, significant: bool) -> str:
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
        words = "Classes have too few samples to hold some out, so whether borrowing helps was not tested."
    elif not helps:
        words = (
            "On samples held out, corrected variances were no nearer than the classes' own: do not expect "
            "neighbour correction to help classes of this size."
        )
    else:
        gain, pooling = (100 * (1 - one / held_out.own) for one in (held_out.corrected, held_out.pooled))
        words = f"On samples held out, correction brought the error of the variances down by {gain:.0f} %, "
        if held_out.corrected > (1 - MARGIN) * held_out.pooled:
            words += (
                f"but so did the global variance in place of the neighbours' (by {pooling:.0f} %): pooling "
                "helps classes of this size, that it is similar classes that lend matters little."
            )
        else:
            words += (
                f"the global variance in place of the neighbours' by {pooling:.0f} %: neighbour correction "
                "can be expected to improve the estimates of classes of this size."
            )
    if borrowing == 0:
        words += f" As configured it changes nothing: no class has {few:g} samples or fewer."
    if level != "unknown":
        words += " Better estimates need not mean better retrieval: `iaa ablate few-samples` measures that."
    return words


def _scale(coefficient: float, shape: float) -> str:
    told = f"With scale removed (each class's squared mean and variance divided by its sum) it is {shape:.2f}"
    if coefficient >= WEAK and shape < coefficient / 2:
        return f"{told}: most of it is scale, classes with large means having large variances."
    return (
        f"{told}: that much is not the overall size of a class. A variance that follows the mean in every "
        "dimension, as behind a ReLU, is still in it."
    )


def _noise(samples: tuple[int, int, int]) -> list[str]:
    least, median, most = samples
    if median < 2:
        return []
    off = 100 * math.sqrt(2 / (median - 1))
    span = f"{least} to {most} samples, in the middle {median}" if least < most else f"{least} samples each"
    told = f"Classes have {span}: "
    told += f"a variance estimated from these is off by about {off:.0f} %"
    if off > 50:
        return [f"{told} and largely noise, which lowers the coefficient whatever the truth."]
    return [f"{told} (for normal data)."]
