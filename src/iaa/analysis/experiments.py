"""Experiments: arms (variants of one configuration) trained over equal seeds, and paired tests over seeds.

torch is imported inside the functions: the command line reads this module for ``--help``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

TestScores = Mapping[str, Mapping[str, float]]
"""By test set and metric, as in a run's ``metrics.json``."""
MOST_FLIPS = 20
"""Seeds up to which all sign flips are counted."""


@dataclass(frozen=True)
class Arm:
    """One variant of a configuration."""

    name: str
    """Also the name of its run directories."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Fields of the configuration and their values, such as ``{"augment.copies": 0}``."""
    series: str = ""
    """Arms of one series form a line of the figure."""
    x: float | None = None
    """Position on the axis; None if there is no axis, or the arm is a horizontal line."""
    against: str | None = None
    """The arm it is compared with."""
    paper: dict[str, float] = field(default_factory=dict)
    """The paper's R@1 in percent by dataset, where it gives one."""


@dataclass(frozen=True)
class Study:
    """A declared experiment: its arms, and where the paper shows it."""

    name: str
    title: str
    source: str
    axis: str | None
    arms: tuple[Arm, ...]
    remarks: tuple[str, ...] = ()
    """How it differs from the paper, whatever the data."""


@dataclass(frozen=True)
class Score:
    """One metric of one arm over all seeds, in percent."""

    mean: float
    deviation: float | None
    """Sample standard deviation over seeds; None for one seed."""
    values: tuple[float, ...]
    """Seed by seed."""
    difference: float | None
    """Mean difference from the arm it is compared with, seed by seed; None without such an arm."""
    difference_deviation: float | None
    p_t: float | None
    """p-value of a paired t-test of that difference."""
    p_flip: float | None
    """p-value of the exact sign-flip test."""


@dataclass(frozen=True)
class ArmRow:
    """One arm and its scores."""

    arm: str
    series: str
    x: float | None
    against: str | None
    changes: tuple[str, ...]
    """The fields it changes, such as ``augment.neighbors=25``."""
    scores: dict[str, dict[str, Score]]
    """By test set (``test``, or small, medium, large) and metric (``R@1``, ``RP``, ``MAP@R`` …)."""
    paper: dict[str, float]
    training_seconds: float
    """Mean over seeds."""


@dataclass(frozen=True)
class Experiment:
    """The outcome: all arms in the order of their declaration."""

    name: str
    title: str
    source: str
    """Table or figure of the paper."""
    axis: str | None
    """What x means, with the paper's letter; None where arms are not numbers."""
    seeds: tuple[int, ...]
    rows: tuple[ArmRow, ...]
    notes: tuple[str, ...]
    """How to read it and where it comes from: seeds, differences from the paper, commit, machine."""


def tabulate(
    study: Study,
    scores: Mapping[str, Mapping[int, TestScores]],
    *,
    seconds: Mapping[str, Sequence[float]],
    notes: Sequence[str] = (),
) -> Experiment:
    """Scores by arm and seed as rows with paired tests; every arm must have the same seeds."""
    seeds = tuple(sorted(scores[study.arms[0].name]))
    for arm in study.arms:
        if sorted(scores[arm.name]) != list(seeds):
            raise ValueError(f"{arm.name} must have the seeds {list(seeds)}, got {sorted(scores[arm.name])}")
    rows = tuple(
        ArmRow(
            arm=arm.name,
            series=arm.series,
            x=arm.x,
            against=arm.against,
            changes=tuple(f"{key}={value}" for key, value in arm.changes.items()),
            scores=_scores(scores[arm.name], scores[arm.against] if arm.against else None, seeds),
            paper=dict(arm.paper),
            training_seconds=spread(seconds[arm.name])[0],
        )
        for arm in study.arms
    )
    every_note = (*_without_effect(rows), *study.remarks, *notes)
    return Experiment(study.name, study.title, study.source, study.axis, seeds, rows, every_note)


def mean_scores(row: ArmRow, test: str) -> dict[str, float]:
    """An arm's mean by metric."""
    return {metric: score.mean for metric, score in row.scores[test].items()}


def _scores(
    runs: Mapping[int, TestScores], reference: Mapping[int, TestScores] | None, seeds: Sequence[int]
) -> dict[str, dict[str, Score]]:
    return {
        test: {
            metric: _score(
                [runs[seed][test][metric] for seed in seeds],
                None if reference is None else [reference[seed][test][metric] for seed in seeds],
            )
            for metric in metrics
        }
        for test, metrics in runs[seeds[0]].items()
    }


def _score(values: Sequence[float], reference: Sequence[float] | None) -> Score:
    gain = None if reference is None else paired(reference, values)
    mean, deviation = spread(values)
    tested = (gain.difference, gain.deviation, gain.p_t, gain.p_flip) if gain else (None,) * 4
    return Score(mean, deviation, tuple(values), *tested)


def _without_effect(rows: Sequence[ArmRow]) -> list[str]:
    """Arms with the same scores in every seed: what distinguishes them had no effect at all."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        values = [[score.values for score in scores.values()] for scores in row.scores.values()]
        groups.setdefault(repr(values), []).append(row.arm)
    hint = "what they change makes no difference here"
    if any(
        field.startswith(("augment.neighbors", "augment.falloff")) for row in rows for field in row.changes
    ):
        hint += " (the value is the configured one, or no class has augment.few samples or fewer)"
    return [
        f"Same scores in every seed: {', '.join(names)}; {hint}."
        for names in groups.values()
        if len(names) > 1
    ]


@dataclass(frozen=True)
class Paired:
    """B minus A over n seeds; None where n is too small (or too large) for a value."""

    n: int
    difference: float
    deviation: float | None
    """Sample standard deviation of the differences."""
    p_t: float | None
    """Two-sided paired t-test, which assumes normal differences; None where they are all equal."""
    p_flip: float | None
    """Two-sided exact sign-flip test, free of assumptions; it cannot fall below ``least``."""
    least: float
    """Smallest p-value that a sign-flip test over n seeds can give: 2 of 2^n flips."""


def paired(a: Sequence[float], b: Sequence[float]) -> Paired:
    """Compare the scores of two arms, seed by seed.

    >>> test = paired([50.0, 52.0, 51.0], [51.0, 54.0, 52.5])
    >>> test.difference, test.p_flip, test.least
    (1.5, 0.25, 0.25)
    """
    import torch

    if len(a) != len(b) or not len(a):
        raise ValueError(f"both arms need one score per seed, got {len(a)} and {len(b)}")
    gain = torch.tensor(b, dtype=torch.float64) - torch.tensor(a, dtype=torch.float64)
    n = len(gain)
    mean, deviation = float(gain.mean()), float(gain.std()) if n > 1 else None
    p_flip = _sign_flip(gain) if n <= MOST_FLIPS else None
    return Paired(n, mean, deviation, _t_test(mean, deviation, n), p_flip, 2.0 ** (1 - n))


def spread(scores: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (None for one score)."""
    import torch

    values = torch.tensor(scores, dtype=torch.float64)
    return float(values.mean()), float(values.std()) if len(values) > 1 else None


def caution(n: int, level: float = 0.05) -> str:
    """A warning that so few seeds cannot show much; empty if they are enough.

    >>> caution(6)
    ''
    """
    enough = next(m for m in range(2, 64) if 2.0 ** (1 - m) <= level)
    if n >= enough:
        return ""
    if n == 1:
        return (
            f"One seed proves nothing: the difference may be chance. {enough} seeds can reach p < {level:g}."
        )
    return (
        f"With {n} seeds the smallest p the sign-flip test can give is {2.0 ** (1 - n):g}; {enough} seeds "
        f"can reach p < {level:g}. The t-test can fall lower, but assumes normal differences."
    )


def _t_test(mean: float, deviation: float | None, n: int) -> float | None:
    if deviation is None or deviation <= 1e-9 * abs(mean):  # no spread to hold the mean against
        return None
    from scipy.special import stdtr  # scipy comes with pytorch-metric-learning

    return float(2 * stdtr(n - 1, -abs(mean) / (deviation / n**0.5)))


def _sign_flip(gain: "Tensor") -> float:
    """Share of all 2^n sign patterns whose sum is at least as far from zero as the observed one."""
    import torch

    sums = torch.zeros(1, dtype=torch.float64)
    for difference in gain:
        sums = torch.cat([sums + difference, sums - difference])
    rounding = 1e-9 * gain.abs().sum()
    return float((sums.abs() >= gain.sum().abs() - rounding).double().mean())
