"""The outcome of an ablation: one row per arm, over equal seeds, beside the paper's numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iaa.analysis.comparison import Scores
from iaa.analysis.paired_tests import paired, spread
from iaa.analysis.serialize import csv_text


@dataclass(frozen=True)
class Arm:
    """One way of training, as it is declared."""

    name: str
    """Also that of its run directories."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Fields of the configuration and their values, such as ``{"augment.copies": 0}``."""
    series: str = ""
    """Arms of one series form a line of the figure."""
    x: float | None = None
    """Where it stands on the axis; None if there is none, or it is a horizontal line."""
    against: str | None = None
    """The arm it is compared with."""
    paper: dict[str, float] = field(default_factory=dict)
    """The paper's R@1 in percent by dataset, where it gives one."""


@dataclass(frozen=True)
class Study:
    """A declared ablation: its arms, and where the paper shows it."""

    name: str
    title: str
    source: str
    axis: str | None
    arms: tuple[Arm, ...]
    remarks: tuple[str, ...] = ()
    """What differs from the paper whatever is trained on."""


@dataclass(frozen=True)
class Score:
    """One metric of one arm over all seeds, in percent."""

    mean: float
    deviation: float | None
    """Sample standard deviation over seeds; None for one seed."""
    values: tuple[float, ...]
    """Seed by seed."""
    difference: float | None
    """From the arm it is compared with, seed by seed, mean; None if it is compared with none."""
    difference_deviation: float | None
    p_t: float | None
    """Of a paired t-test of that difference."""
    p_flip: float | None
    """Of all sign flips."""


@dataclass(frozen=True)
class ArmRow:
    """One arm and its scores."""

    arm: str
    series: str
    """Arms of one series form a line of the figure, such as ``IAA`` or ``without correction``."""
    x: float | None
    """Where it stands on the axis; None if the ablation has no axis, or it is a horizontal line."""
    against: str | None
    """The arm it is compared with."""
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
    """All arms, in the order they were declared in."""

    name: str
    """components, few-samples, generation, losses, strength, neighbors, copies, refresh, falloff or dim."""
    title: str
    source: str
    """Table or figure of the paper."""
    axis: str | None
    """What x means, with the paper's letter; None where arms are no numbers."""
    seeds: tuple[int, ...]
    rows: tuple[ArmRow, ...]
    notes: tuple[str, ...]
    """How to read it and where it comes from: seeds, what differs from the paper, commit, machine."""


def tabulate(
    study: Study,
    scores: Mapping[str, Mapping[int, Scores]],
    *,
    seconds: Mapping[str, Sequence[float]],
    notes: Sequence[str] = (),
) -> Ablation:
    """Scores by arm and seed, as in the runs' ``metrics.json``, in rows; all arms have the same seeds."""
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
    told = (*_idle(rows), *study.remarks, *notes)
    return Ablation(study.name, study.title, study.source, study.axis, seeds, rows, told)


def table(ablation: Ablation, test: str) -> list[list[str]]:
    """Head and rows of one test set as words: R@1, RP and MAP@R, the gain in R@1, the paper's numbers."""
    found = ablation.rows[0].scores[test]
    metrics = [next(iter(found)), *(name for name in ("RP", "MAP@R") if name in found)]
    datasets = list(dict.fromkeys(name for row in ablation.rows for name in row.paper))
    compares = any(row.against for row in ablation.rows)
    head = ["arm", *metrics]
    head += [f"{metrics[0]} gained", "over", "p (t)"] if compares else []
    lines = [head + [f"paper, {name}" for name in datasets]]
    for row in ablation.rows:
        scores = row.scores[test]
        line = [row.arm, *(_number(scores[one].mean, scores[one].deviation) for one in metrics)]
        if compares:
            first = scores[metrics[0]]
            gain = (
                "" if first.difference is None else _number(first.difference, first.difference_deviation, "+")
            )
            line += [gain, row.against or "", _p(first)]
        lines.append(line + [f"{row.paper[name]:.1f}" if name in row.paper else "" for name in datasets])
    return lines


def markdown(ablation: Ablation) -> str:
    """The page ``ablation.md``: tables first, then how they came about."""
    text = [f"# {ablation.title}", ""]
    tests = list(ablation.rows[0].scores)
    for test in tests:
        head, *lines = table(ablation, test)
        if len(tests) > 1:
            text += [f"## {test}", ""]
        text += [_line(head), _line(["---"] * len(head)), *map(_line, lines), ""]
    return "\n".join([*text, *(f"- {note}" for note in ablation.notes)]) + "\n"


def comma_separated(ablation: Ablation) -> str:
    """``ablation.csv``: a row per arm, test set, metric and seed."""
    head = ["arm", "series", "x", "changes", "test", "metric", "seed", "score"]
    rows = (
        [row.arm, row.series, row.x, "; ".join(row.changes), test, metric, seed, value]
        for row in ablation.rows
        for test, scores in row.scores.items()
        for metric, score in scores.items()
        for seed, value in zip(ablation.seeds, score.values, strict=True)
    )
    return csv_text(head, rows)


def _scores(
    runs: Mapping[int, Scores], base: Mapping[int, Scores] | None, seeds: Sequence[int]
) -> dict[str, dict[str, Score]]:
    found: dict[str, dict[str, Score]] = {}
    for test, metrics in runs[seeds[0]].items():
        found[test] = {}
        for metric in metrics:
            values = [runs[seed][test][metric] for seed in seeds]
            gain = None if base is None else paired([base[seed][test][metric] for seed in seeds], values)
            mean, deviation = spread(values)
            found[test][metric] = Score(
                mean=mean,
                deviation=deviation,
                values=tuple(values),
                difference=None if gain is None else gain.difference,
                difference_deviation=None if gain is None else gain.deviation,
                p_t=None if gain is None else gain.p_t,
                p_flip=None if gain is None else gain.p_flip,
            )
    return found


def _idle(rows: Sequence[ArmRow]) -> list[str]:
    """Arms with the same scores in every seed: what distinguishes them had no effect at all."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        groups.setdefault(repr([[s.values for s in one.values()] for one in row.scores.values()]), []).append(
            row.arm
        )
    same = [f"{', '.join(names)}" for names in groups.values() if len(names) > 1]
    hint = "what they change makes no difference here"
    if any("augment.neighbors" in one or "augment.falloff" in one for row in rows for one in row.changes):
        hint += " (it is so already, or classes of more than augment.few samples borrow nothing)"
    return [f"Same scores in every seed: {names}; {hint}." for names in same]


def _number(value: float, deviation: float | None, sign: str = "") -> str:
    return f"{value:{sign}.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def _p(score: Score) -> str:
    if score.difference is None:
        return ""
    return "-" if score.p_t is None else f"{score.p_t:.3f}" if score.p_t >= 0.001 else "< 0.001"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
