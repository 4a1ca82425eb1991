"""``iaa train``: from images to a measured model."""

import dataclasses
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import tyro
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

from iaa.config import Config
from iaa.errors import unknown
from iaa.presets import paper_row, start, teach

if TYPE_CHECKING:
    from iaa.runs import Run

HELP = """Train an embedding model on images, measure it on classes it has not seen, and leave all of it
in a run directory. The first word is a preset, a config.json or a run; any field can be changed."""


def run(words: Sequence[str]) -> int:
    """Parse ``[PRESET] [--field value …]`` and train."""
    config, rest = start(words)
    check_fields(rest, also=("resume", "dry-run", "quiet", "report", "no-report"))
    description = f"{HELP}\n\n{teach(words)}"
    return int(tyro.cli(_command(config), prog="iaa train PRESET", args=rest, description=description) or 0)


def _command(default: Config) -> Any:
    def command(
        config: Annotated[Config, tyro.conf.arg(name="")] = default,
        resume: Path | None = None,
        dry_run: bool = False,
        quiet: bool = False,
        report: bool = True,
    ) -> int:
        """Train and measure.

        Args:
            config: The run.
            resume: Go on with this interrupted run; everything else is taken from its config.json.
            dry_run: Show classes, samples, batches, parameters, memory and time, and stop.
            quiet: Print nothing but the path of the run.
            report: In the end write report.html into the run: images found, curves, classes.
        """
        return _train(config, default, resume, dry_run, quiet, report)

    return command


def _train(
    config: Config, default: Config, resume: Path | None, dry_run: bool, quiet: bool, report: bool
) -> int:
    from iaa.memory import keep_freed_memory
    from iaa.runs import Run

    keep_freed_memory()
    log_to_stderr(quiet)
    if resume is not None and config != default:
        raise ValueError("--resume takes its configuration from the run: leave the other options out")
    if dry_run:
        from iaa.training.dry_run import dry_run as estimate

        return _show_facts(estimate(config if resume is None else Run(resume).config))
    if resume is not None and Run(resume).finished:
        show(Run(resume))
        print("this run is finished: nothing was left to do")
        return 0
    from iaa.train import train
    from iaa.training import distributed

    run = train(None if resume else config, resume=resume, quiet=quiet)
    if distributed.leads():
        print(run.path, flush=True) if quiet else show(run)
        if report:
            _report(run, quiet)
    return 0


def _report(run: "Run", quiet: bool) -> None:
    """The page of a finished run; whatever happens here, the run is done and stays so."""
    try:
        from iaa.report.write import write_report

        words = str(write_report((run,), quiet=True)[0])
    except ImportError as error:
        words = f"no report.html: {error}"
    except KeyboardInterrupt:
        words = f"no report.html, stopped; `iaa report {run.path}` makes it"
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        words = f"no report.html: {reason}; `iaa report {run.path}` tries again"
    if not quiet:
        print(words)


def show(run: "Run") -> None:
    """The table at the end of a run, and where everything lies."""
    metrics = run.metrics
    console = _console()
    parts = list(metrics["test"])
    paper = paper_row(run.config)
    for part in parts:
        unseen = "test classes" if metrics["train"].get("tested_as_well") else "unseen classes"
        title = f"{unseen}, percent" + (f" ({part})" if len(parts) > 1 else "")
        columns = list(metrics["test"][part])
        table = Table("", *columns, title=title, title_justify="left")
        for name, found in metrics["table"].items():
            table.add_row(name, *(f"{found[part][column]:.1f}" for column in columns))
        if paper and part in paper.numbers:
            told = paper.numbers[part]
            cells = [f"{told[column]:.1f}" if column in told else "" for column in columns]
            table.add_row(f"paper, {', '.join(paper.tables)}", *cells)
        console.print(table)
    if paper and paper.departures:
        console.print(f"not the paper's recipe: {', '.join(paper.departures)}", highlight=False, markup=False)
    minutes = metrics["training_seconds"] / 60
    words = f"epoch {metrics['epoch'] + 1}, {minutes:.1f} minutes of training\n{run.path}"
    console.print(words, highlight=False, markup=False, soft_wrap=True)  # a path is no markup, and one word


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 120)


def _show_facts(facts: dict[str, Any]) -> int:
    table = Table(show_header=False)
    for name, value in facts.items():
        table.add_row(name, str(value))
    _console().print(table)
    return 0


def check_fields(words: Sequence[str], *, also: Sequence[str]) -> None:
    """An unknown field in one line with the nearest one, before tyro explains at length."""
    known = {*_fields(Config), *also, "help"}
    for word in words:
        if word.startswith("--"):
            name = word[2:].partition("=")[0].replace("_", "-")
            if name not in known:
                near = [f"--{one}" for one in sorted(known)]
                raise _nearest(f"--{name}", near)


def _nearest(word: str, known: list[str]) -> ValueError:
    message = str(unknown("field", word, known))
    hint = message.rpartition(" (did you mean ")[2] if "did you mean" in message else ""
    meant = f"; did you mean {hint.rstrip(')?')}?" if hint else ""
    return ValueError(f"there is no option {word}{meant} `iaa train --help` lists them all")


def _fields(kind: type[Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    hints = get_type_hints(kind)
    for one in dataclasses.fields(kind):
        name = prefix + one.name.replace("_", "-")
        if dataclasses.is_dataclass(hints[one.name]):
            found |= _fields(hints[one.name], name + ".")
        else:
            negative = f"{prefix}no-{one.name.replace('_', '-')}"
            found |= {name, negative} if hints[one.name] is bool else {name}
    return found


def log_to_stderr(quiet: bool) -> None:
    """What the package has to say, without decoration."""
    handler = RichHandler(console=Console(stderr=True), show_time=False, show_path=False, show_level=False)
    logging.getLogger("iaa").handlers = [handler]
    logging.getLogger("iaa.train").setLevel(logging.WARNING if quiet else logging.INFO)
