"""``iaa ablate``: the paper's ablations and sweeps on any configuration, over equal seeds."""

import importlib
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from iaa.analysis.experiments import Experiment, Study, caution, tabulate
from iaa.analysis.serialize import arm_table, comma_separated, markdown, plain
from iaa.cli.config_options import parse
from iaa.cli.multirun import ExperimentOptions, RunOutcomes, experiment_name, run_experiment
from iaa.cli.output import print_tables
from iaa.config import Config
from iaa.errors import unknown
from iaa.files import write_json, write_text
from iaa.presets.ablations import STUDIES, find_study

HELP = """Train the arms of one of the paper's ablations or sweeps with equal seeds, batches and budget.

The first argument names the ablation; the next is a preset, a config.json or a run; any field can be changed.
Every arm and seed has a run directory of its own. The same command continues what was interrupted, and with
more seeds adds what is missing. It writes ablation.md, .csv, .json and, with iaa[report] installed, .svg."""


@dataclass(frozen=True)
class AblateOptions(ExperimentOptions):
    """What is trained."""

    arms: tuple[str, ...] = ()
    """Only these arms of the ablation, and those they are compared with; all if not given."""


def run(arguments: list[str]) -> int:
    """Train what is missing, then write and show the ablation."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview())
        return 0
    study = find_study(arguments[0])
    options = parse(
        AblateOptions,
        arguments[1:],
        prog=f"iaa ablate {study.name}",
        description=f"{describe(study)}\n\n{HELP}",
    )
    study = _selected(study, options.arms)
    name = experiment_name(arguments[1:], options.config)
    home = options.out or Path(options.config.run.out) / f"ablate-{study.name}-{name}"
    _, outcomes = run_experiment(options, {arm.name: arm.changes for arm in study.arms}, home)
    ablation = _outcome(study, outcomes, options.config, command=f"iaa ablate {shlex.join(arguments)}")
    tables = {test: arm_table(ablation, test) for test in ablation.rows[0].scores}
    files = _write(home, ablation, markdown(ablation.title, tables, ablation.notes))
    notes = [f"- {note}" for note in ablation.notes]
    print_tables(ablation.title, tables, [*notes, f"Written to {home}: {', '.join(files)}"])
    return 0


def overview() -> str:
    """For ``iaa ablate --help``: all ablations, a line each."""
    width = max(map(len, STUDIES))
    lines = [f"  {name:<{width}}  {study.title} ({study.source})" for name, study in STUDIES.items()]
    usage = "usage: iaa ablate NAME [PRESET | config.json | RUN] [--seeds 3] [--jobs 1] [--out DIR]"
    usage += " [--field value …]"
    return "\n".join(
        [usage, "", HELP, "", *lines, "", "`iaa ablate NAME --help` shows its arms and all options."]
    )


def describe(study: Study) -> str:
    """A study and its arms, a line each."""
    lines = [f"{study.name}: {study.title} ({study.source})."]
    for arm in study.arms:
        changes = ", ".join(f"{key}={value}" for key, value in arm.changes.items()) or "as configured"
        lines.append(f"- {arm.name}: {changes}")
    return "\n".join(lines)


def _selected(study: Study, wanted: tuple[str, ...]) -> Study:
    """The study with some arms alone, and those they are compared with."""
    known = {arm.name: arm for arm in study.arms}
    keep = set(wanted)
    for name in wanted:
        if name not in known:
            raise unknown("an arm", name, known)
        reference = known[name].against
        while reference:
            keep.add(reference)
            reference = known[reference].against
    return replace(study, arms=tuple(arm for arm in study.arms if arm.name in keep)) if keep else study


def _outcome(study: Study, outcomes: RunOutcomes, config: Config, *, command: str) -> Experiment:
    seeds = [str(seed) for seed in next(iter(outcomes.scores.values()))]
    network = config.model if config.vectors_file is None else "a head on given vectors"
    loss = "each loss named" if study.name in ("losses", "generation") else config.loss
    before = []
    for name, tests in outcomes.untrained.items():
        scores = (", ".join(f"{key} {value:.2f}" for key, value in test.items()) for test in tests.values())
        before.append(f"{name}, before any training: {'; '.join(scores)}")
    notes = [
        f"Percent, mean ± standard deviation over seeds ({', '.join(seeds)}). Gains are seed by "
        "seed: arms share a seed, and so initial weights, batches and budget. p of a paired t-test.",
        caution(len(seeds)),
        f"Here: {loss} on {config.data.partition(':')[0]}, {network}, {config.epochs} epochs. The paper: "
        "GoogLeNet, 512 dimensions, whole network trained for 100 epochs; compare the order of rows and "
        "their gaps.",
        *before,
        f"`{command}`",
        outcomes.origin,
    ]
    ablation = tabulate(
        study, outcomes.scores, seconds=outcomes.training_seconds, notes=[*filter(None, notes)]
    )
    return replace(ablation, notes=(*outcomes.warnings(ablation), *ablation.notes))


def _write(home: Path, ablation: Experiment, page: str) -> list[str]:
    """All files; the names of those that were written."""
    write_json(home / "ablation.json", plain(ablation))
    write_text(home / "ablation.md", page)
    write_text(home / "ablation.csv", comma_separated(ablation))
    written = ["ablation.md", "ablation.csv", "ablation.json"]
    try:
        figures = importlib.import_module("iaa.report.figures")
        figures.ablation(ablation).save(home / "ablation.svg")
    except ImportError as missing:  # the numbers do not depend on it
        return [*written, f"no figure: {missing}"]
    return [*written, "ablation.svg"]
