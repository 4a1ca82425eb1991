"""``iaa compare``: baseline and IAA with equal seeds, batches and budget, and a paired test over seeds."""

import ast
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from iaa.analysis.comparison import markdown, notes, summarize, table
from iaa.cli.cmd_train import check_fields
from iaa.cli.multirun import changed, gather, name_of, train_arms
from iaa.config import Config
from iaa.files import write_json, write_text
from iaa.presets import paper_row, start, teach

HELP = """Train a baseline (no copies) and IAA with equal seeds, batches and budget, and test the difference.

The first word is a preset, a config.json or a run; any field can be changed. Every run has a directory of its
own. The same command continues what was interrupted; with more seeds or arms it adds what is missing."""


@dataclass(frozen=True)
class Options:
    """What is compared."""

    config: Annotated[Config, tyro.conf.arg(name="")]
    seeds: int = 5
    """Number of seeds, counted from --seed."""
    arm: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A further arm, such as "no-correction: augment.correction=False"; can be given again.
    "baseline: ..." changes that one, where it is to have a learning rate or margin of its own."""
    out: Path | None = None
    """Directory of the comparison; compare-PRESET below --run.out if not given."""
    jobs: int = 1
    """Runs at a time, each in a process of its own."""
    quiet: bool = False
    """Show no progress."""


def run(words: list[str]) -> int:
    """Read the words, train what is missing, write and show the comparison."""
    config, rest = start(words)
    check_fields(rest, also=("seeds", "arm", "out", "jobs", "quiet"))
    options = tyro.cli(
        Options,
        default=Options(config),
        args=rest,
        prog="iaa compare PRESET",
        description=f"{HELP}\n\n{teach(words)}",
    )
    name = name_of(words, options.config)
    if options.seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {options.seeds}")
    home = options.out or Path(options.config.run.out) / f"compare-{name}"
    given = [_read_arm(words) for words in options.arm]
    arms: dict[str, list[str]] = {"baseline": [], "iaa": []} | dict(given)
    for arm, times in Counter(name for name, _ in given).items():
        if times > 1:
            raise ValueError(f"--arm {arm} is given {times} times: name every arm once")
    arms["baseline"].append("augment.copies=0")
    configs = {arm: changed(options.config, _values(changes)) for arm, changes in arms.items()}
    if options.config.augment.copies == 0:
        raise ValueError(
            "augment.copies is 0: both arms would be the baseline; leave it out, or give 1 or more"
        )
    seeds = list(range(options.config.seed, options.config.seed + options.seeds))
    folders = train_arms(home, configs, seeds, quiet=options.quiet, jobs=options.jobs)
    comparison = _gather(folders, configs, seeds)
    against = f"{', '.join([*arms][1:])} against baseline"
    comparison |= {
        "title": f"{name}: {against}, {len(seeds)} seed{'s' * (len(seeds) > 1)}",
        "command": f"iaa compare {shlex.join(words)}",
        "arms": {arm: ", ".join(changes) or "as configured" for arm, changes in arms.items()},
    }
    _write(home, comparison)
    _show(comparison, home)
    return 0


def _read_arm(text: str) -> tuple[str, list[str]]:
    """``name: field=value, field=value``."""
    name, colon, changes = text.partition(":")
    if not colon or not re.fullmatch(r"[\w.-]+", name.strip()) or name.strip() == "iaa":
        raise ValueError(f"an arm is written 'name: field=value, ...' with a name of its own, got {text!r}")
    parts = re.split(r",(?![^({]*[)}])", changes)
    return name.strip(), [change.strip() for change in parts if change.strip()]


def _values(changes: list[str]) -> dict[str, Any]:
    """``field=value`` as Python would read the value, or else as text."""
    found: dict[str, Any] = {}
    for change in changes:
        key, sign, text = (part.strip() for part in change.partition("="))
        if not sign:
            raise ValueError(f"an arm is written 'name: field=value, ...', got {change!r} in one")
        try:
            found[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[key] = text
    return found


def _gather(
    folders: dict[str, dict[int, Path]], configs: dict[str, Config], seeds: list[int]
) -> dict[str, Any]:
    found = gather(folders)
    expected = {arm: paper_row(config) for arm, config in configs.items()}
    departing = dict.fromkeys(words for row in expected.values() if row for words in row.departures)
    kept = ("untrained", "training_seconds", "runs", "commits", "versions", "machine")
    return {
        "seeds": seeds,
        "summary": summarize(found["scores"]),
        "paper": {arm: row.numbers for arm, row in expected.items() if row and arm in ("baseline", "iaa")},
        "departures": [f"Not the paper's recipe: {', '.join(departing)}."] if departing else [],
        **{key: found[key] for key in kept},
        "config": asdict(configs["iaa"]),
    }


def _write(home: Path, comparison: dict[str, Any]) -> None:
    write_json(home / "comparison.json", comparison)
    write_text(home / "comparison.md", markdown(comparison))


def _show(comparison: dict[str, Any], home: Path) -> None:
    console = Console()
    for title, (head, *lines) in _tables(comparison):
        shown = Table(*head, title=title, title_justify="left")
        for line in lines:
            shown.add_row(*line)
        console.print(shown)
    for note in notes(comparison)[:2]:
        console.print(note, highlight=False, markup=False)
    console.print(
        f"Written: {home / 'comparison.md'} and comparison.json",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _tables(comparison: dict[str, Any]) -> Iterator[tuple[str, list[list[str]]]]:
    for test, rows in comparison["summary"].items():
        paper = {arm: told[test] for arm, told in comparison["paper"].items() if test in told}
        title = comparison["title"] + ("" if test == "test" else f", {test}")
        yield title, table(rows, paper)
