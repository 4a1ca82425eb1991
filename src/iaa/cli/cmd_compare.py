"""``iaa compare``: baseline and IAA with equal seeds, batches and budget, and a paired test over seeds."""

import ast
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from iaa.analysis.experiments import Arm, Experiment, Study, caution, mean_scores, tabulate
from iaa.analysis.regression import regression_note, untrained_rows
from iaa.analysis.serialize import markdown, metric_table, summary
from iaa.cli.config_options import parse
from iaa.cli.multirun import RunOutcomes, changed, experiment_name, read_outcomes, train_arms
from iaa.cli.output import print_tables
from iaa.config import Config
from iaa.files import write_json, write_text
from iaa.presets import paper_row

HELP = """Train a baseline (no copies) and IAA with equal seeds, batches and budget, and test the difference.

The first argument is a preset, a config.json or a run; any field can be changed. Every run has a directory of
its own. The same command continues what was interrupted; with more seeds or arms it adds what is missing."""


@dataclass(frozen=True)
class CompareOptions:
    """What is compared."""

    config: Annotated[Config, tyro.conf.arg(name="")]
    seeds: int = 5
    """Number of seeds, counted from --seed."""
    arm: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A further arm, such as "no-correction: augment.correction=False"; can be repeated.
    "baseline: ..." changes that one, for example to give it a learning rate or margin of its own."""
    out: Path | None = None
    """Directory of the comparison; compare-PRESET below --run.out if not given."""
    jobs: int = 1
    """Runs at a time, each in a process of its own."""
    quiet: bool = False
    """Show no progress."""


def run(arguments: list[str]) -> int:
    """Train what is missing, then write and show the comparison."""
    options = parse(CompareOptions, arguments, prog="iaa compare", description=HELP)
    name = experiment_name(arguments, options.config)
    if options.seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {options.seeds}")
    home = options.out or Path(options.config.run.out) / f"compare-{name}"
    arms = _arms(options.arm)
    configs = {arm: changed(options.config, _values(changes)) for arm, changes in arms.items()}
    if options.config.augment.copies == 0:
        raise ValueError(
            "augment.copies is 0: both arms would be the baseline; leave it out, or give 1 or more"
        )
    seeds = list(range(options.config.seed, options.config.seed + options.seeds))
    folders = train_arms(home, configs, seeds, quiet=options.quiet, jobs=options.jobs)
    outcomes = read_outcomes(folders)
    against = f"{', '.join([*arms][1:])} against baseline"
    title = f"{name}: {against}, {len(seeds)} seed{'s' * (len(seeds) > 1)}"
    base, *others = arms
    study = Study("compare", title, "", None, (Arm(base), *(Arm(arm, against=base) for arm in others)))
    experiment = tabulate(study, outcomes.scores, seconds=outcomes.training_seconds)
    command = f"iaa compare {shlex.join(arguments)}"
    _finish(home, experiment, outcomes, configs, arms, command)
    return 0


def _arms(given: tuple[str, ...]) -> dict[str, list[str]]:
    """Every arm and its changes, the baseline first."""
    named = [_read_arm(text) for text in given]
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


def _finish(
    home: Path,
    experiment: Experiment,
    outcomes: RunOutcomes,
    configs: Mapping[str, Config],
    arms: Mapping[str, list[str]],
    command: str,
) -> None:
    """Write ``comparison.json`` and ``comparison.md``, and print the tables."""
    expected = {arm: paper_row(config) for arm, config in configs.items()}
    departures = dict.fromkeys(change for row in expected.values() if row for change in row.departures)
    paper = {arm: row.numbers for arm, row in expected.items() if row and arm in ("baseline", "iaa")}
    changes = {arm: ", ".join(fields) or "as configured" for arm, fields in arms.items()}
    tables = {}
    warnings = []
    for test in experiment.rows[0].scores:
        untrained = untrained_rows(outcomes.untrained, test)
        printed = {arm: numbers[test] for arm, numbers in paper.items() if test in numbers}
        tables[test] = metric_table(experiment, test, untrained=untrained, paper=printed)
        notes = (regression_note(mean_scores(row, test), untrained, name=row.arm) for row in experiment.rows)
        warnings += [note for note in notes if note]
    seeds = ", ".join(map(str, experiment.seeds))
    reading = [
        *warnings,
        f"Percent, mean ± standard deviation over seeds ({seeds}); differences from the first arm, seed by "
        "seed: arms share a seed, and so initial weights, batches, crops and budget. p-values of a paired "
        "t-test, and of the exact sign-flip test. Rows without a deviation were measured before training.",
        caution(len(experiment.seeds)),
    ]
    departing = [f"Not the paper's recipe: {', '.join(departures)}."] if departures else []
    notes_below = [
        *reading,
        *(f"{arm}: {fields}." for arm, fields in changes.items()),
        f"{configs['iaa'].epochs} epochs a run: `{command}`.",
        *departing,
        outcomes.origin,
    ]
    write_json(
        home / "comparison.json",
        {
            "seeds": list(experiment.seeds),
            "summary": summary(experiment),
            "paper": paper,
            "departures": departing,
            "untrained": outcomes.untrained,
            "training_seconds": outcomes.training_seconds,
            "runs": outcomes.runs,
            "commits": outcomes.commits,
            "versions": outcomes.versions,
            "machine": outcomes.machine,
            "config": asdict(configs["iaa"]),
            "title": experiment.title,
            "command": command,
            "arms": changes,
            "warnings": warnings,
        },
    )
    write_text(
        home / "comparison.md", markdown(experiment.title, tables, [note for note in notes_below if note])
    )
    shown = [*reading, f"Written: {home / 'comparison.md'} and comparison.json"]
    print_tables(experiment.title, tables, [note for note in shown if note])
