"""``iaa train``: from images to a measured model."""

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from iaa.analysis.regression import regression_note, untrained_rows
from iaa.cli.config_options import parse
from iaa.config import Config
from iaa.presets import paper_row, start

if TYPE_CHECKING:
    from iaa.runs import Run

HELP = """Train an embedding model on images and score it on classes it has not seen.

Your own photos, a folder per class: `iaa train --data folder:photos`. Everything is kept in a run directory,
which `iaa search`, `serve`, `report` and `export` take.

The first argument can be a preset, a config.json or a run. Every field can be changed, by its full name or by
the end of it where that is unique (--lr is --optimizer.lr)."""


@dataclass(frozen=True)
class TrainOptions:
    """What to train, and what to show."""

    config: Annotated[Config, tyro.conf.arg(name="")]
    resume: Path | None = None
    """Continue this interrupted run; everything else is taken from its config.json."""
    dry_run: bool = False
    """Show classes, samples, batches, parameters, memory and time, and stop."""
    quiet: bool = False
    """Print nothing but the path of the run."""
    report: bool = True
    """Write report.html into the run at the end: retrieved images, curves, classes."""


def run(arguments: Sequence[str]) -> int:
    """Parse ``[PRESET] [--field value …]`` and train."""
    options = parse(TrainOptions, arguments, prog="iaa train", description=HELP)
    config, resume = options.config, options.resume
    from iaa.allocator import keep_freed_memory
    from iaa.runs import Run

    keep_freed_memory()
    log_to_stderr(options.quiet)
    if resume is not None and config != start(arguments)[0]:
        raise ValueError("--resume takes its configuration from the run: leave the other options out")
    if options.dry_run:
        from iaa.training.dry_run import dry_run as estimate

        former = None if resume is None else Run(resume)
        facts = estimate(config) if former is None else estimate(former.config, classes=former.classes)
        return _show_facts(facts)
    if resume is not None and Run(resume).finished:
        show(Run(resume))
        print("this run is finished: nothing was left to do")
        return 0
    from iaa.train import train
    from iaa.training import distributed

    run = train(None if resume else config, resume=resume, quiet=options.quiet)
    if distributed.leads():
        print(run.path, flush=True) if options.quiet else show(run)
        if options.report:
            _report(run, options.quiet)
    return 0


def _report(run: "Run", quiet: bool) -> None:
    """The page of a finished run; whatever happens here, the run is done."""
    try:
        message = str(run.report(quiet=True))
    except ImportError as error:
        message = f"no report.html: {error}"
    except KeyboardInterrupt:
        message = f"no report.html, stopped; `iaa report {run.path}` makes it"
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        message = f"no report.html: {reason}; `iaa report {run.path}` tries again"
    if not quiet:
        print(message)


def show(run: "Run") -> None:
    """The table at the end of a run, a warning if training made search worse, and where everything is."""
    metrics = run.metrics
    console = _console()
    tests = list(metrics["test"])
    paper = paper_row(run.config)
    for test in tests:
        unseen = "test classes" if metrics["train"].get("tested_as_well") else "unseen classes"
        title = f"{unseen}, percent" + (f" ({test})" if len(tests) > 1 else "")
        columns = list(metrics["test"][test])
        held_out = _held_out(metrics)
        table = Table("", *columns, *held_out[""], title=title, title_justify="left")
        for name, scores in metrics["table"].items():
            values = [f"{scores[test][column]:.1f}" for column in columns]
            chosen = " (chosen)" if name == metrics.get("ladder", {}).get("chosen") else ""
            table.add_row(name + chosen, *values, *held_out.get(name, ()))
        if paper and test in paper.numbers:
            printed = paper.numbers[test]
            cells = [f"{printed[column]:.1f}" if column in printed else "" for column in columns]
            table.add_row(f"paper, {', '.join(paper.tables)}", *cells)
        console.print(table)
        _warn(console, metrics, test)
    if paper and paper.departures:
        console.print(f"not the paper's recipe: {', '.join(paper.departures)}", highlight=False)
    minutes = metrics["training_seconds"] / 60
    summary = f"epoch {metrics['epoch'] + 1}, {minutes:.1f} minutes of training\n{run.path}"
    if "ladder" in metrics:
        rungs = metrics["ladder"]["rungs"]
        left_out = [f"Left out: {rung['name']}, {rung['left_out']}." for rung in rungs if rung["left_out"]]
        summary = "\n".join([metrics["ladder"]["reason"], *left_out, f"{minutes:.1f} minutes", str(run.path)])
    console.print(summary, highlight=False, soft_wrap=True)  # a path must not be wrapped


def _held_out(metrics: Mapping[str, Any]) -> dict[str, list[str]]:
    """The column of scores on held-out training classes: its title under the empty name, a cell per row."""
    if "ladder" not in metrics:
        return {"": []}
    cells = {"": ["held-out MAP@R"]}
    for rung in metrics["ladder"]["rungs"]:
        values = [scores["MAP@R"] for scores in rung["held_out"]]
        cells[rung["name"]] = [f"{sum(values) / len(values):.1f}" if values else ""]
    return cells


def _warn(console: Console, metrics: Mapping[str, Any], test: str) -> None:
    note = regression_note(metrics["test"][test], untrained_rows(metrics["table"], test))
    if note:
        console.print(f"Warning: {note}", style="bold red", highlight=False, soft_wrap=True)


def _console() -> Console:
    width = None if sys.stdout.isatty() else 120
    return Console(width=width, markup=False, emoji=False)  # names of folders are shown as they are


def _show_facts(facts: dict[str, Any]) -> int:
    table = Table(show_header=False)
    for name, value in facts.items():
        table.add_row(name, str(value))
    _console().print(table)
    return 0


def log_to_stderr(quiet: bool) -> None:
    """Log messages of the package, without decoration."""
    from rich.logging import RichHandler

    handler = RichHandler(console=Console(stderr=True), show_time=False, show_path=False, show_level=False)
    logging.getLogger("iaa").handlers = [handler]
    logging.getLogger("iaa.train").setLevel(logging.WARNING if quiet else logging.INFO)
