"""Results of analyses and experiments as JSON, CSV and Markdown."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from iaa.analysis.experiments import Experiment, Score, paired


def plain(result: Any) -> Any:
    """What JSON can hold: dataclasses as objects, tuples as lists, infinite and undefined numbers as null.

    >>> from iaa.analysis.experiments import paired
    >>> plain(paired([1.0], [2.0]))["difference"]
    1.0
    """
    if hasattr(result, "__dataclass_fields__"):
        result = asdict(result)
    if isinstance(result, Mapping):
        return {str(key): plain(value) for key, value in result.items()}
    if isinstance(result, tuple | list):
        return [plain(value) for value in result]
    if isinstance(result, float) and not math.isfinite(result):
        return None
    return result


def csv_text(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table as CSV, quoted where needed; None is an empty cell.

    >>> csv_text(["class", "n"], [["a, b", 3]])
    'class,n\\n"a, b",3\\n'
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(list(head))
    writer.writerows([list(row) for row in rows])
    return out.getvalue()


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table.

    >>> markdown_table(["a", "b"], [["1", "x|y"]])
    ['| a | b |', '| --- | --- |', '| 1 | x\\\\|y |']
    """
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cell.strip().replace('|', chr(92) + '|') for cell in line)} |" for line in lines]


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


def _gain(score: Score) -> str:
    return "" if score.difference is None else _number(score.difference, score.difference_deviation, "+")


def _number(value: float, deviation: float | None, sign: str = "") -> str:
    return f"{value:{sign}.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"
