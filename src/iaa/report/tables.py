"""Tables of a page: scores with intervals and the paper's numbers, and what was run."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from iaa.config import Config
from iaa.presets import paper_row
from iaa.report.blocks import Cell, Facts, Table
from iaa.report.findings import Findings, Scores


def score_tables(every: Sequence[Findings]) -> list[Table]:
    """A table for every test part: before training, after it, differences, and what the paper says."""
    parts = dict.fromkeys(part for one in every for part in one.scores)
    return [_score_table(every, part, several=len(parts) > 1) for part in parts]


def _score_table(every: Sequence[Findings], part: str, *, several: bool) -> Table:
    here = [one for one in every if part in one.scores]
    metrics = list(dict.fromkeys(metric for one in here for metric in one.scores[part].metrics))
    rows = _before(here, part, metrics)
    for one in here:
        found = one.scores[part].metrics
        cells = [_interval(found[metric]) if metric in found else Cell("") for metric in metrics]
        rows.append((_name(one, alone=len(every) == 1), *cells))
        if one.against_first.get(part):
            gain = one.against_first[part]
            words = Cell("difference", below=f"to {every[0].name}")
            rows.append((words, *(_gain(gain[m]) if m in gain else Cell("") for m in metrics)))
    told, departing = _paper(here, part, metrics)
    unseen = all(one.run.metrics and not one.run.metrics["train"].get("tested_as_well") for one in here)
    classes = "classes not seen in training" if unseen else "the test classes"
    title = f"Scores on {part if several else classes}"
    settings = {one.name: _setting(one.scores[part]) for one in here}
    differ = len(set(settings.values())) > 1
    asked = [f"{name}: {words}" for name, words in settings.items()] if differ else [*settings.values()][:1]
    notes = [*asked, *_how(every, here), *departing]
    return Table(f"{title}, percent", ("", *metrics), (*rows, *told), tuple(notes))


def _before(here: Sequence[Findings], part: str, metrics: Sequence[str]) -> list[tuple[Cell, ...]]:
    """What needed no training, once; runs on the same data share it."""
    rows: dict[tuple[str, ...], tuple[Cell, ...]] = {}
    differ = len({_setting(one.scores[part]) for one in here}) > 1
    for one in here:
        for name, tests in (one.run.metrics or {}).get("table", {}).items():
            if name == "trained" or part not in tests:
                continue
            words = f"{one.name}, last epoch" if name == "trained, last epoch" and len(here) > 1 else name
            words = f"{words}, {one.name}" if differ and not name.startswith("trained") else words
            cells = [f"{tests[part][m]:.1f}" if m in tests[part] else "" for m in metrics]
            rows.setdefault((words, *cells), (Cell(words), *map(Cell, cells)))
    return list(rows.values())


def _paper(here: Sequence[Findings], part: str, metrics: Sequence[str]) -> tuple[list[Any], list[str]]:
    rows, notes = {}, {}
    for one in here:
        expected = paper_row(one.run.config) if one.run.config else None
        if expected and part in expected.numbers:
            numbers = expected.numbers[part]
            cells = [Cell(f"{numbers[m]:.1f}" if m in numbers else "") for m in metrics]
            with_iaa = "with IAA" if one.run.config and one.run.config.augment.copies else "baseline"
            words = Cell(f"paper, {with_iaa}", below=", ".join(expected.tables))
            rows[expected.preset, with_iaa] = (words, *cells)
            if expected.departures:
                notes[one.name] = (
                    f"{one.name} departs from the paper's recipe: {', '.join(expected.departures)}."
                )
    return list(rows.values()), list(notes.values())


def _name(one: Findings, *, alone: bool) -> Cell:
    return Cell("trained" if alone and one.run.metrics else one.name, below=_epoch(one), strong=True)


def _epoch(one: Findings) -> str:
    metrics = one.run.metrics
    if metrics is None:
        return ""
    chosen = "best on held-out classes" if metrics.get("select") == "best" else "the last"
    return f"epoch {metrics['epoch'] + 1}, {chosen}"


def _interval(found: dict[str, Any]) -> Cell:
    low, high = found["over_classes"]
    return Cell(f"{found['value']:.1f}", below=f"{low:.1f} – {high:.1f}", strong=True)


def _gain(found: Any) -> Cell:
    p = "p < 0.001" if found.p_classes < 0.001 else f"p = {found.p_classes:.3f}"
    clear = found.low > 0 or found.high < 0
    return Cell(_signed(found.mean), f"{_signed(found.low)} to {_signed(found.high)}\n{p}", strong=clear)


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "\N{MINUS SIGN}")


def _setting(scores: Scores) -> str:
    gallery = "each against all others" if scores.gallery is None else f"against {scores.gallery:,} others"
    words = f"{scores.queries:,} queries of {scores.classes:,} classes, {gallery}."
    if scores.without_positive:
        words += f" {scores.without_positive:,} queries have no match at all and are left out."
    return words


def _how(every: Sequence[Findings], here: Sequence[Findings]) -> list[str]:
    notes = [
        "Small numbers are 95 % intervals by bootstrap over classes: how far the score might be off for "
        "other classes of this kind, with the same weights."
    ]
    if any(one.against_first for one in here):
        notes.append(
            "Differences are paired, query by query; p by flipping the signs of whole classes. They hold for "
            "these weights: another seed gives others."
        )
    seeds = {one.run.config.seed for one in every if one.run.config}
    if seeds:
        count = "One seed" if len(seeds) == 1 else f"{len(seeds)} seeds, each run by itself"
        notes.append(f"{count}. `iaa compare` trains several and tests the difference between two recipes.")
    return notes


def what_was_run(one: Findings) -> Facts:
    """The run in a few lines; every field of its configuration folded away."""
    run = one.run
    rows: list[tuple[str, str]] = []
    if run.config is None:
        meta = {key: value for key, value in one.data.meta.items() if isinstance(value, str | int | float)}
        rows = [("file", str(run.path)), *((key, str(value)) for key, value in meta.items())]
        return Facts(one.name, tuple(rows))
    rows += _recipe(run.config)
    if run.metrics:
        trained = run.metrics["train"]
        rows.append(("trained on", f"{trained['samples']:,} samples of {trained['classes']:,} classes"))
        rows.append(("training took", _duration(run.metrics["training_seconds"])))
    if run.surroundings:
        around = run.surroundings
        machine = around["machine"]
        rows.append(("machine", f"{machine['system']}, {machine['cores']} cores"))
        versions = [f"{name} {number}" for name, number in around["versions"].items() if number]
        rows.append(("versions", ", ".join(versions)))
        rows.append(("started", f"{around['started']}, commit {around['commit'] or 'unknown'}"))
    fields = [(name, str(value)) for name, value in flat(asdict(run.config)).items()]
    return Facts(one.name, tuple(rows), tuple(fields))


def _recipe(config: Config) -> list[tuple[str, str]]:
    options, network, batch = config.augment, config.network, config.batch
    model = config.model if config.vectors_file is None else "a head on given vectors"
    augment = "none (baseline)"
    if options.copies:
        correction = f"neighbours {options.neighbors}" if options.correction else "no correction"
        augment = (
            f"{options.copies} copies, strength {options.strength:g}, {options.covariance}, {correction}"
        )
    return [
        ("data", config.data),
        ("network", f"{model}, {network.dim} dimensions"),
        ("loss", config.loss),
        ("augmentation", augment),
        ("schedule", f"{config.epochs} epochs of {batch.classes} x {batch.per_class} batches"),
        ("optimiser", f"{config.optimizer.name}, learning rate {config.optimizer.lr:g}"),
        ("seed", str(config.seed)),
    ]


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def flat(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested fields as ``group.field``."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        nested = isinstance(value, dict) and value
        found |= flat(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return found
