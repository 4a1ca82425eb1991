"""``iaa compare``: baseline and IAA with equal seeds, batches and budget, and a paired test over seeds."""

import ast
import json
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from iaa.analysis.comparison import markdown, notes, summarize, table
from iaa.cli.train import check_fields, log_to_stderr
from iaa.config import Config, load_config
from iaa.presets import departures, paper_row, start, teach

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
    """A further arm, such as "no-correction: augment.correction=False"; can be given again."""
    out: Path | None = None
    """Directory of the comparison; compare-PRESET below --run.out if not given."""
    quiet: bool = False
    """Show no progress."""


def run(words: list[str]) -> int:
    """Read the words, train what is missing, write and show the comparison."""
    config, rest = start(words)
    check_fields(rest, also=("seeds", "arm", "out", "quiet"))
    options = tyro.cli(
        Options,
        default=Options(config),
        args=rest,
        prog="iaa compare PRESET",
        description=f"{HELP}\n\n{teach(words)}",
    )
    name = _name(words, options.config)
    if options.seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {options.seeds}")
    home = options.out or Path(options.config.run.out) / f"compare-{name}"
    arms = {"baseline": ["augment.copies=0"], "iaa": []} | dict(map(_read_arm, options.arm))
    configs = {arm: _changed(options.config, changes) for arm, changes in arms.items()}
    if options.config.augment.copies == 0:
        raise ValueError(
            "augment.copies is 0: both arms would be the baseline; leave it out, or give 1 or more"
        )
    seeds = list(range(options.config.seed, options.config.seed + options.seeds))
    folders = _train(home, configs, seeds, quiet=options.quiet)
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


def _name(words: list[str], config: Config) -> str:
    if not words or words[0].startswith("-"):
        return config.data.partition(":")[0]
    path = Path(words[0])
    return path.resolve().parent.name if path.name == "config.json" else path.name


def _read_arm(text: str) -> tuple[str, list[str]]:
    """``name: field=value, field=value``."""
    name, colon, changes = text.partition(":")
    if not colon or not re.fullmatch(r"[\w.-]+", name.strip()) or name.strip() in ("baseline", "iaa"):
        raise ValueError(f"an arm is written 'name: field=value, ...' with a name of its own, got {text!r}")
    return name.strip(), [change.strip() for change in re.split(r",(?![^()]*\))", changes) if change.strip()]


def _changed(config: Config, changes: list[str]) -> Config:
    fields: dict[str, Any] = json.loads(config.to_json())
    for change in changes:
        key, _, text = change.partition("=")
        check_fields([f"--{key.strip()}"], also=())
        *groups, last = key.strip().split(".")
        inside = fields
        for group in groups:
            inside = inside[group]
        was = inside.get(last)
        try:
            value: Any = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError):
            value = text.strip()
        kind = (
            (list, tuple) if isinstance(was, list) else (int, float) if isinstance(was, float) else type(was)
        )
        if last not in inside or not (was is None or isinstance(value, kind)):
            raise ValueError(f"an arm must set a field to a value like {was!r}, got {change!r}")
        inside[last] = value
    return Config.from_json(json.dumps(fields), source="an arm")


def _train(
    home: Path, configs: dict[str, Config], seeds: list[int], *, quiet: bool
) -> dict[str, dict[int, Path]]:
    """The finished run of every arm and seed; seed by seed, so that what is there early can be paired."""
    folders: dict[str, dict[int, Path]] = {arm: {} for arm in configs}
    plan = [
        (seed, arm, _planned(home, config, arm, seed, seeds))
        for seed in seeds
        for arm, config in configs.items()
    ]
    found = [_existing(home, config) for _, _, config in plan]  # foreign runs are refused before any work
    from iaa.training.memory import keep_freed_memory

    keep_freed_memory()
    log_to_stderr(quiet=True)
    begun, trained = time.monotonic(), 0
    for place, (seed, arm, config) in enumerate(plan):
        folder = found[place]
        if folder is None or not _finished(folder):
            left = sum(one is None or not _finished(one) for one in found[place:])
            minutes = (time.monotonic() - begun) / max(trained, 1) * left / 60
            if not quiet:
                ahead = f", about {minutes:.0f} min left" if trained else ""
                print(f"run {place + 1} of {len(plan)}: {arm}, seed {seed}{ahead}", flush=True)
            folder = _one(config, folder, quiet=quiet, home=home)
            trained += 1
        folders[arm][seed] = folder
    return folders


def _finished(folder: Path) -> bool:
    return (folder / "metrics.json").is_file()  # the last thing a run writes


def _one(config: Config, folder: Path | None, *, quiet: bool, home: Path) -> Path:
    from iaa.train import train

    try:
        return train(resume=folder, quiet=quiet) if folder else train(config, quiet=quiet)
    except KeyboardInterrupt as stopped:
        raise KeyboardInterrupt(f"stopped; the same command continues in {home}") from stopped


def _planned(home: Path, config: Config, arm: str, seed: int, seeds: list[int]) -> Config:
    once = arm == "baseline" and seed == seeds[0]  # what comes before training is the same in every arm
    run = replace(
        config.run, out=str(home), name=f"{arm}-seed{seed}", untrained=once and config.run.untrained
    )
    return replace(config, seed=seed, run=run)


def _existing(home: Path, config: Config) -> Path | None:
    """The run of this arm and seed, finished or not, if there is one."""
    for folder in home.glob(f"{config.run.name}-*"):
        if (folder / "config.json").is_file():
            old = load_config(folder)
            other = departures(config, replace(old, run=replace(old.run, out=str(home))), free=())
            if other:
                raise ValueError(
                    f"{folder} is a run of another comparison ({'; '.join(other)}): give another --out"
                )
            return folder
    return None


def _gather(
    folders: dict[str, dict[int, Path]], configs: dict[str, Config], seeds: list[int]
) -> dict[str, Any]:
    read = {
        arm: {seed: json.loads((folder / "metrics.json").read_text()) for seed, folder in runs.items()}
        for arm, runs in folders.items()
    }
    around = [
        json.loads((f / "surroundings.json").read_text()) for runs in folders.values() for f in runs.values()
    ]
    expected = {arm: paper_row(config) for arm, config in configs.items()}
    departing = dict.fromkeys(words for row in expected.values() if row for words in row.departures)
    rows = read["baseline"][seeds[0]]["table"]
    return {
        "seeds": seeds,
        "summary": summarize(
            {arm: {s: run["test"] for s, run in runs.items()} for arm, runs in read.items()}
        ),
        "paper": {arm: row.numbers for arm, row in expected.items() if row and arm in ("baseline", "iaa")},
        "departures": [f"Not the paper's recipe: {', '.join(departing)}."] if departing else [],
        "untrained": {name: scores for name, scores in rows.items() if not name.startswith("trained")},
        "training_seconds": {arm: [runs[s]["training_seconds"] for s in seeds] for arm, runs in read.items()},
        "runs": {arm: [folder.name for folder in runs.values()] for arm, runs in folders.items()},
        "commits": sorted({one["commit"] for one in around if one["commit"]}),
        "versions": around[-1]["versions"],
        "machine": around[-1]["machine"],
        "config": asdict(configs["iaa"]),
    }


def _write(home: Path, comparison: dict[str, Any]) -> None:
    from iaa.training.runs import write, write_json

    write_json(home / "comparison.json", comparison)
    write(home / "comparison.md", markdown(comparison).encode())


def _show(comparison: dict[str, Any], home: Path) -> None:
    console = Console()
    for title, (head, *lines) in _tables(comparison):
        shown = Table(*head, title=title, title_justify="left")
        for line in lines:
            shown.add_row(*line)
        console.print(shown)
    for note in notes(comparison)[:2]:
        console.print(note, highlight=False)
    console.print(f"Written: {home / 'comparison.md'} and comparison.json", highlight=False)


def _tables(comparison: dict[str, Any]) -> Iterator[tuple[str, list[list[str]]]]:
    for test, rows in comparison["summary"].items():
        paper = {arm: told[test] for arm, told in comparison["paper"].items() if test in told}
        title = comparison["title"] + ("" if test == "test" else f", {test}")
        yield title, table(rows, paper)
