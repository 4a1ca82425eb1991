"""The outcome of an ablation: one row per arm, over equal seeds, beside the paper's numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """One metric of one arm over all seeds, in percent."""

    mean: float
    deviation: float | None
    """Sample standard deviation over seeds; None for one seed."""
    values: tuple[float, ...]
    """Seed by seed."""
    difference: float | None
    """From the first arm, seed by seed, mean; None for that arm itself."""
    difference_deviation: float | None
    p_t: float | None
    """Of a paired t-test of that difference."""
    p_flip: float | None
    """Of all sign flips."""


@dataclass(frozen=True)
class ArmRow:
    """One arm."""

    arm: str
    """Its name, such as ``K=25`` or ``baseline``."""
    series: str
    """Arms of one series form a line of the figure; such as ``IAA`` or ``without correction``."""
    x: float | None
    """Where it stands on the axis; None if the ablation has no axis, or it is a horizontal line."""
    changes: tuple[str, ...]
    """The fields it changes, such as ``augment.neighbors=25``."""
    scores: dict[str, dict[str, Score]]
    """By test set (``test``, or small, medium, large) and metric (``R@1``, ``RP``, ``MAP@R`` …)."""
    paper: dict[str, float]
    """The paper's R@1 in percent by dataset (cub, cars, sop, inshop), where it gives one."""
    training_seconds: float
    """Mean over seeds."""


@dataclass(frozen=True)
class Ablation:
    """All arms; the first is what the others are compared with."""

    name: str
    """components, few-samples, generation, losses, strength, neighbors, copies, refresh, falloff, dim."""
    title: str
    source: str
    """Table or figure of the paper."""
    axis: str | None
    """What x means, with the paper's letter; None where arms are no numbers."""
    seeds: tuple[int, ...]
    rows: tuple[ArmRow, ...]
    notes: tuple[str, ...]
    """How to read it and where it comes from: seeds, departures from the paper, commit, machine."""
