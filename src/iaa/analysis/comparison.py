"""Arms against a baseline over equal seeds: what finished runs say together."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from iaa.analysis.paired_tests import caution, paired, spread

Scores = Mapping[str, Mapping[str, float]]
"""By test set and metric, as in a run's ``metrics.json``."""


def summarize(runs: Mapping[str, Mapping[int, Scores]]) -> dict[str, Any]:
    """By test set and metric: every arm's mean and deviation, and how it differs from the first arm.

    ``runs`` holds scores by arm and seed; all arms have the same seeds, and the first one is the baseline.
    """
    base, *others = runs
    seeds = sorted(runs[base])
    for arm in others:
        if sorted(runs[arm]) != seeds:
            raise ValueError(f"{arm} must have the seeds of {base}, {seeds}; got {sorted(runs[arm])}")
    summary: dict[str, Any] = {}
    for test, metrics in runs[base][seeds[0]].items():
        summary[test] = {}
        for metric in metrics:
            values = {arm: [runs[arm][seed][test][metric] for seed in seeds] for arm in runs}
            row: dict[str, Any] = {}
            for arm, scores in values.items():
                mean, deviation = spread(scores)
                row[arm] = {"mean": mean, "deviation": deviation, "values": scores}
                if arm != base:
                    row[arm]["against_baseline"] = asdict(paired(values[base], scores))
            summary[test][metric] = row
    return summary


def table(rows: Mapping[str, Any], paper: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """The head and the rows of one test set as words, arms below each other; ``paper`` by arm and metric."""
    head = ["metric", "arm", "score", "difference", "p (t)", "p (flips)"]
    lines = [head + ["paper"] * bool(paper)]
    for metric, row in rows.items():
        for arm, one in row.items():
            line = [metric if arm == next(iter(row)) else "", arm, _with_deviation(one, one["mean"], "")]
            gain = one.get("against_baseline")
            if gain:
                line += [_with_deviation(gain, gain["difference"], "+"), _p(gain["p_t"]), _p(gain["p_flip"])]
            told = paper.get(arm, {}).get(metric)
            lines.append(
                line + [""] * (len(head) - len(line)) + [f"{told:.1f}" if told else ""] * bool(paper)
            )
    return lines


def markdown(comparison: Mapping[str, Any]) -> str:
    """The page ``comparison.md``: tables first, then how they came about."""
    text = [f"# {comparison['title']}", ""]
    for test, rows in comparison["summary"].items():
        paper = {arm: told[test] for arm, told in comparison["paper"].items() if test in told}
        head, *lines = table(rows, paper)
        if len(comparison["summary"]) > 1:
            text += [f"## {test}", ""]
        text += [_line(head), _line(["---"] * len(head)), *map(_line, lines), ""]
    text += [f"- {note}" for note in notes(comparison)]
    if comparison["untrained"]:
        text += ["", "For scale, before any training (first seed):", ""]
        for name, tests in comparison["untrained"].items():
            for test, scores in tests.items():
                told = ", ".join(f"{metric} {value:.2f}" for metric, value in scores.items())
                text.append(f"- {name}{'' if test == 'test' else f', {test}'}: {told}")
    return "\n".join(text) + "\n"


def notes(comparison: Mapping[str, Any]) -> list[str]:
    """How to read the tables, and where they come from."""
    seeds = comparison["seeds"]
    found = [
        f"Percent, mean ± standard deviation over seeds ({', '.join(map(str, seeds))}); differences "
        "from the first arm, seed by seed: arms share a seed, and so first weights, batches, crops, budget. "
        "p of a paired t-test, and of all sign flips.",
        caution(len(seeds)),
        *(f"{arm}: {changes}." for arm, changes in comparison["arms"].items()),
        f"{comparison['config']['epochs']} epochs a run: `{comparison['command']}`.",
        *comparison["departures"],
    ]
    versions = ", ".join(f"{name} {number}" for name, number in comparison["versions"].items() if number)
    machine = ", ".join(f"{name} {value}" for name, value in comparison["machine"].items())
    commits = ", ".join(comparison["commits"]) or "unknown"
    return [note for note in [*found, f"Commit {commits}; {versions}; {machine}."] if note]


def _with_deviation(one: Mapping[str, Any], value: float, sign: str) -> str:
    return f"{value:{sign}.2f}" + ("" if one["deviation"] is None else f" ± {one['deviation']:.2f}")


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
