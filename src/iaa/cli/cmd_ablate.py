"""``iaa ablate``: the paper's ablations and sweeps on any configuration, over equal seeds."""

import importlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from iaa.analysis.ablation import Ablation, Study, comma_separated, markdown, table, tabulate
from iaa.analysis.paired_tests import caution
from iaa.analysis.serialize import plain
from iaa.cli.cmd_train import check_fields
from iaa.cli.multirun import changed, gather, name_of, train_arms
from iaa.config import Config
from iaa.errors import unknown
from iaa.files import write_json, write_text
from iaa.presets import start, teach
from iaa.presets.ablations import STUDIES, find_study

HELP = """Train the arms of one of the paper's ablations or sweeps with equal seeds, batches and budget.

The first word names the ablation; the next is a preset, a config.json or a run; any field can be changed.
Every arm and seed has a run directory of its own. The same command continues what was interrupted, and with
more seeds adds what is missing. Ends in ablation.md, .csv, .json and, with iaa[report] installed, .svg."""

TABLES = ("ablation.md", "ablation.csv", "ablation.json")


@dataclass(frozen=True)
class Options:
    """What is trained."""

    config: Annotated[Config, tyro.conf.arg(name="")]
    seeds: int = 3
    """Number of seeds, counted from --seed."""
    arms: tuple[str, ...] = ()
    """Only these arms of the ablation, and those they are compared with; all if not given."""
    jobs: int = 1
    """Runs at a time, each in a process of its own."""
    out: Path | None = None
    """Directory of the ablation; ablate-NAME-PRESET below --run.out if not given."""
    quiet: bool = False
    """Show no progress."""


def run(words: list[str]) -> int:
    """Read the words, train what is missing, write and show the ablation."""
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        return 0
    study = find_study(words[0])
    config, rest = start(words[1:])
    check_fields(rest, also=("seeds", "arms", "jobs", "out", "quiet"))
    options = tyro.cli(
        Options,
        default=Options(config),
        args=rest,
        prog=f"iaa ablate {study.name} PRESET",
        description=f"{describe(study)}\n\n{HELP}\n\n{teach(words[1:])}",
    )
    if options.seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {options.seeds}")
    if options.config.augment.copies == 0:
        raise ValueError(
            "augment.copies is 0: every arm would be a baseline; leave it out, or give 1 or more"
        )
    study = _chosen(study, options.arms)
    name = name_of(words[1:], options.config)
    home = options.out or Path(options.config.run.out) / f"ablate-{study.name}-{name}"
    configs = {arm.name: changed(options.config, arm.changes) for arm in study.arms}
    seeds = list(range(options.config.seed, options.config.seed + options.seeds))
    folders = train_arms(home, configs, seeds, quiet=options.quiet, jobs=options.jobs)
    ablation = _result(study, folders, options.config, command=f"iaa ablate {shlex.join(words)}")
    written = _write(home, ablation)
    _show(ablation)
    print(f"Written to {home}: {', '.join(written)}")
    return 0


def overview() -> str:
    """For ``iaa ablate --help``: all ablations, a line each."""
    width = max(map(len, STUDIES))
    lines = [f"  {name:<{width}}  {study.title} ({study.source})" for name, study in STUDIES.items()]
    usage = "usage: iaa ablate NAME [PRESET | config.json | RUN] [--seeds 3] [--jobs 1] [--out DIR]"
    usage += " [--field value …]"
    return "\n".join(
        [usage, "", HELP, "", *lines, "", "iaa ablate NAME --help shows its arms and every option."]
    )


def describe(study: Study) -> str:
    """A study and its arms, a line each."""
    lines = [f"{study.name}: {study.title} ({study.source})."]
    for arm in study.arms:
        changes = ", ".join(f"{key}={value}" for key, value in arm.changes.items()) or "as configured"
        lines.append(f"- {arm.name}: {changes}")
    return "\n".join(lines)


def _chosen(study: Study, wanted: tuple[str, ...]) -> Study:
    known = {arm.name: arm for arm in study.arms}
    keep = set(wanted)
    for name in wanted:
        if name not in known:
            raise unknown("an arm", name, known)
        base = known[name].against
        while base:
            keep.add(base)
            base = known[base].against
    if not keep:
        return study
    arms = tuple(arm for arm in study.arms if arm.name in keep)
    return Study(study.name, study.title, study.source, study.axis, arms, study.remarks)


def _result(study: Study, folders: dict[str, dict[int, Path]], config: Config, *, command: str) -> Ablation:
    found = gather(folders)
    seeds = list(next(iter(folders.values())))
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items() if number)
    machine = ", ".join(f"{name} {value}" for name, value in found["machine"].items())
    what = config.model if config.vectors_file is None else "a head on given vectors"
    loss = "each loss named" if study.name in ("losses", "generation") else config.loss
    notes = [
        f"Percent, mean ± standard deviation over seeds ({', '.join(map(str, seeds))}). Gains are seed by "
        "seed: arms share a seed, and so first weights, batches and budget. p of a paired t-test.",
        caution(len(seeds)),
        f"Here: {loss} on {config.data.partition(':')[0]}, {what}, {config.epochs} epochs. The paper: "
        "GoogLeNet, 512 dimensions, trained whole for 100 epochs; compare the order of rows and their gaps.",
        *(
            f"{name}, before any training: "
            + "; ".join(
                ", ".join(f"{metric} {value:.2f}" for metric, value in one.items()) for one in tests.values()
            )
            for name, tests in found["untrained"].items()
        ),
        f"`{command}`",
        f"Commit {', '.join(found['commits']) or 'unknown'}; {versions}; {machine}.",
    ]
    return tabulate(
        study, found["scores"], seconds=found["training_seconds"], notes=[note for note in notes if note]
    )


def _write(home: Path, ablation: Ablation) -> list[str]:
    """All files, and the names of those that were written."""
    write_json(home / "ablation.json", plain(ablation))
    write_text(home / "ablation.md", markdown(ablation))
    write_text(home / "ablation.csv", comma_separated(ablation))
    try:
        figures = importlib.import_module("iaa.report.figures")
        figures.ablation(ablation, home / "ablation.svg")
    except ImportError as missing:  # the numbers do not depend on it
        return [*TABLES, f"no figure: {missing}"]
    return [*TABLES, "ablation.svg"]


def _show(ablation: Ablation) -> None:
    console = Console(width=None if Console().is_terminal else 160)
    for test in ablation.rows[0].scores:
        head, *lines = table(ablation, test)
        shown = Table(title=ablation.title + ("" if test == "test" else f", {test}"), title_justify="left")
        for name in head:
            shown.add_column(name, justify="left" if name in ("arm", "over") else "right")
        for line in lines:
            shown.add_row(*line)
        console.print(shown)
    for note in ablation.notes:
        console.print(f"- {note}", highlight=False, markup=False)
