"""``iaa compare``: baseline and IAA with equal seeds, batches and budget, and a paired test over seeds."""

import ast
import re
import shlex
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tyro

from iaa.analysis.experiments import Arm, Study, caution, tabulate
from iaa.analysis.regression import untrained_rows
from iaa.analysis.serialize import markdown, metric_table, summary
from iaa.cli.config_options import parse
from iaa.cli.multirun import ExperimentOptions, experiment_name, run_experiment
from iaa.cli.output import print_tables
from iaa.files import write_json, write_text
from iaa.presets import paper_row

HELP = """Train a baseline (no copies) and IAA with equal seeds, batches and budget, and test the difference.

The first argument is a preset, a config.json or a run; any field can be changed. Every run has a directory of
its own. The same command continues what was interrupted; with more seeds or arms it adds what is missing."""


@dataclass(frozen=True)
class CompareOptions(ExperimentOptions):
    """What is compared."""

    seeds: int = 5
    """Number of seeds, counted from --seed."""
    arm: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    (
        'A further arm, such as "no-correction: augment.correction=False"; can be repeated. '
        '"baseline: ..." changes the baseline, for example its learning rate or margin.'
    )


def run(arguments: list[str]) -> int:
    """Train what is missing, then write and show the comparison."""
    options = parse(CompareOptions, arguments, prog="iaa compare", description=HELP)
    name = experiment_name(arguments, options.config)
    home = options.out or Path(options.config.run.out) / f"compare-{name}"
    arms = _arms(options.arm)
    configs, outcomes = run_experiment(
        options, {arm: _values(changes) for arm, changes in arms.items()}, home
    )
    base, *others = arms
    seeds = f"{options.seeds} seed{'s' * (options.seeds > 1)}"
    title = f"{name}: {', '.join(others)} against baseline, {seeds}"
    study = Study("compare", title, "", None, (Arm(base), *(Arm(arm, against=base) for arm in others)))
    experiment = tabulate(study, outcomes.scores, seconds=outcomes.training_seconds)
    expected = {arm: paper_row(config) for arm, config in configs.items()}
    departures = dict.fromkeys(change for row in expected.values() if row for change in row.departures)
    paper = {arm: row.numbers for arm, row in expected.items() if row and arm in ("baseline", "iaa")}
    changes = {arm: ", ".join(fields) or "as configured" for arm, fields in arms.items()}
    tables = {}
    for test in experiment.rows[0].scores:
        printed = {arm: numbers[test] for arm, numbers in paper.items() if test in numbers}
        untrained = untrained_rows(outcomes.untrained, test)
        tables[test] = metric_table(experiment, test, untrained=untrained, paper=printed)
    warnings = outcomes.warnings(experiment)
    reading = [
        *warnings,
        f"Percent, mean ± standard deviation over seeds ({', '.join(map(str, experiment.seeds))}); "
        "differences from the first arm, seed by seed: arms share a seed, and so initial weights, batches, "
        "crops and budget. p-values of a paired t-test, and of the exact sign-flip test. Rows without a "
        "deviation were measured before training.",
        *filter(None, [caution(options.seeds)]),
    ]
    departing = [f"Not the paper's recipe: {', '.join(departures)}."] if departures else []
    command = f"iaa compare {shlex.join(arguments)}"
    notes = [
        *reading,
        *(f"{arm}: {fields}." for arm, fields in changes.items()),
        f"{configs['iaa'].epochs} epochs a run: `{command}`.",
        *departing,
        outcomes.origin,
    ]
    content = {
        "seeds": list(experiment.seeds),
        "summary": summary(experiment),
        "paper": paper,
        "departures": departing,
        **{key: value for key, value in asdict(outcomes).items() if key != "scores"},
        "config": asdict(configs["iaa"]),
        "title": title,
        "command": command,
        "arms": changes,
        "warnings": warnings,
    }
    write_json(home / "comparison.json", content)
    write_text(home / "comparison.md", markdown(title, tables, notes))
    print_tables(title, tables, [*reading, f"Written: {home / 'comparison.md'} and comparison.json"])
    return 0


def _arms(texts: tuple[str, ...]) -> dict[str, list[str]]:
    """Every arm and its changes, the baseline first."""
    named = [_read_arm(text) for text in texts]
    for arm, times in Counter(name for name, _ in named).items():
        if times > 1:
            raise ValueError(f"--arm {arm} is given {times} times: name every arm once")
    arms: dict[str, list[str]] = {"baseline": [], "iaa": []} | dict(named)
    arms["baseline"].append("augment.copies=0")
    return arms


def _read_arm(text: str) -> tuple[str, list[str]]:
    """``name: field=value, field=value``."""
    name, colon, changes = text.partition(":")
    if not colon or not re.fullmatch(r"[\w.-]+", name.strip()) or name.strip() == "iaa":
        raise ValueError(f"an arm is written 'name: field=value, ...' with a name of its own, got {text!r}")
    parts = re.split(r",(?![^({]*[)}])", changes)
    return name.strip(), [change.strip() for change in parts if change.strip()]


def _values(changes: list[str]) -> dict[str, Any]:
    """``field=value`` as Python would read the value, or else as text."""
    values: dict[str, Any] = {}
    for change in changes:
        key, sign, text = (part.strip() for part in change.partition("="))
        if not sign:
            raise ValueError(f"an arm is written 'name: field=value, ...', got {change!r} in one")
        try:
            values[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            values[key] = text
    return values
