"""Experiments: arms (variants of one configuration) trained over equal seeds, paired tests, and tables."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from iaa.analysis.paired_tests import paired, spread
from iaa.analysis.serialize import csv_text, markdown_table

TestScores = Mapping[str, Mapping[str, float]]
"""By test set and metric, as in a run's ``metrics.json``."""


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


def arm_table(experiment: Experiment, test: str) -> list[list[str]]:
    """Head and rows of one test set, a row per arm: R@1, RP, MAP@R, the gain in R@1, the paper's numbers."""
    scores = experiment.rows[0].scores[test]
    metrics = [next(iter(scores)), *(name for name in ("RP", "MAP@R") if name in scores)]
    datasets = list(dict.fromkeys(name for row in experiment.rows for name in row.paper))
    compares = any(row.against for row in experiment.rows)
    head = ["arm", *metrics]
    head += [f"{metrics[0]} gained", "over", "p (t)"] if compares else []
    table = [head + [f"paper, {name}" for name in datasets]]
    for row in experiment.rows:
        scores = row.scores[test]
        cells = [row.arm, *(_number(scores[metric].mean, scores[metric].deviation) for metric in metrics)]
        if compares:
            gain = scores[metrics[0]]
            cells += [_gain(gain), row.against or "", _p(gain.p_t) if gain.difference is not None else ""]
        table.append(cells + [f"{row.paper[name]:.1f}" if name in row.paper else "" for name in datasets])
    return table


def metric_table(
    experiment: Experiment,
    test: str,
    *,
    untrained: Mapping[str, Mapping[str, float]] | None = None,
    paper: Mapping[str, Mapping[str, float]] | None = None,
) -> list[list[str]]:
    """Head and rows of one test set, arms below each other for every metric, untrained scores first.

    ``untrained`` is by row and metric, ``paper`` by arm and metric.
    """
    head = ["metric", "arm", "score", "difference", "p (t)", "p (flips)", *(["paper"] if paper else [])]
    table = [head]
    for metric in experiment.rows[0].scores[test]:
        lines = [
            [name, f"{scores[metric]:.2f}"] for name, scores in (untrained or {}).items() if metric in scores
        ]
        for row in experiment.rows:
            score = row.scores[test][metric]
            line = [row.arm, _number(score.mean, score.deviation)]
            if score.difference is not None:
                line += [_gain(score), _p(score.p_t), _p(score.p_flip)]
            printed = (paper or {}).get(row.arm, {}).get(metric)
            line += [""] * (5 - len(line)) + ([f"{printed:.1f}"] if printed else [])
            lines.append(line)
        for position, line in enumerate(lines):
            cells = [metric if position == 0 else "", *line]
            table.append(cells + [""] * (len(head) - len(cells)))
    return table


def summary(experiment: Experiment) -> dict[str, Any]:
    """By test set, metric and arm, as in ``comparison.json``: mean, deviation, values and the paired test."""
    arms = {row.arm: row for row in experiment.rows}
    cells: dict[str, Any] = {}
    for test, metrics in experiment.rows[0].scores.items():
        cells[test] = {metric: {} for metric in metrics}
        for row in experiment.rows:
            for metric, score in row.scores[test].items():
                cell: dict[str, Any] = {"mean": score.mean, "deviation": score.deviation}
                cell["values"] = list(score.values)
                if row.against is not None:
                    reference = arms[row.against].scores[test][metric].values
                    cell["against_baseline"] = asdict(paired(reference, score.values))
                cells[test][metric][row.arm] = cell
    return cells


def markdown(title: str, tables: Mapping[str, Sequence[Sequence[str]]], notes: Sequence[str]) -> str:
    """A page: a table per test set, then the notes."""
    text = [f"# {title}", ""]
    for test, (head, *rows) in tables.items():
        if len(tables) > 1:
            text += [f"## {test}", ""]
        text += [*markdown_table(head, rows), ""]
    return "\n".join([*text, *(f"- {note}" for note in notes)]) + "\n"


def comma_separated(experiment: Experiment) -> str:
    """CSV with a row per arm, test set, metric and seed."""
    head = ["arm", "series", "x", "changes", "test", "metric", "seed", "score"]
    rows = (
        [row.arm, row.series, row.x, "; ".join(row.changes), test, metric, seed, value]
        for row in experiment.rows
        for test, scores in row.scores.items()
        for metric, score in scores.items()
        for seed, value in zip(experiment.seeds, score.values, strict=True)
    )
    return csv_text(head, rows)


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
    return Score(
        mean=mean,
        deviation=deviation,
        values=tuple(values),
        difference=None if gain is None else gain.difference,
        difference_deviation=None if gain is None else gain.deviation,
        p_t=None if gain is None else gain.p_t,
        p_flip=None if gain is None else gain.p_flip,
    )


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


def _gain(score: Score) -> str:
    return "" if score.difference is None else _number(score.difference, score.difference_deviation, "+")


def _number(value: float, deviation: float | None, sign: str = "") -> str:
    return f"{value:{sign}.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"
