"""Tables of a page: scores with intervals and the paper's numbers, and the configuration."""

from collections.abc import Sequence
from typing import Any

from iaa.analysis.regression import lowered
from iaa.config import Config
from iaa.presets import flat_fields, paper_row
from iaa.report.blocks import FactTable, Table, TableCell
from iaa.report.findings import Findings, Scores
from iaa.retrieval.significance import Difference


def score_tables(all_findings: Sequence[Findings]) -> list[Table]:
    """A table for every test part: before training, after it, differences, and the paper's numbers."""
    parts = dict.fromkeys(part for findings in all_findings for part in findings.scores)
    return [_score_table(all_findings, part, several=len(parts) > 1) for part in parts]


def _score_table(all_findings: Sequence[Findings], part: str, *, several: bool) -> Table:
    tested = [findings for findings in all_findings if part in findings.scores]
    metrics = list(dict.fromkeys(metric for findings in tested for metric in findings.scores[part].metrics))
    rows = _untrained(tested, part, metrics)
    for findings in tested:
        rows.append((_name(findings, alone=len(all_findings) == 1), *_scores(findings, part, metrics)))
        gains = findings.against_first.get(part)
        if gains:
            name = TableCell("difference", detail=f"to {all_findings[0].name}")
            rows.append((name, *(_gain(gains[m]) if m in gains else TableCell("") for m in metrics)))
    paper, departures = _paper(tested, part, metrics)
    unseen = all(
        findings.run.metrics and not findings.run.metrics["train"].get("tested_as_well")
        for findings in tested
    )
    classes = "classes not seen in training" if unseen else "the test classes"
    title = f"Scores on {part if several else classes}"
    settings = {findings.name: _setting(findings.scores[part]) for findings in tested}
    differ = len(set(settings.values())) > 1
    setting = [f"{name}: {text}" for name, text in settings.items()] if differ else [*settings.values()][:1]
    notes = [*setting, *_how_to_read(all_findings, tested), *departures]
    return Table(f"{title}, percent", ("", *metrics), (*rows, *paper), tuple(notes))


def _scores(findings: Findings, part: str, metrics: Sequence[str]) -> list[TableCell]:
    """A run's scores with intervals; those that training lowered are marked."""
    scores, reference = findings.scores[part], findings.reference(part)
    cells = []
    for metric in metrics:
        score = scores.metrics.get(metric)
        if score is None:
            cells.append(TableCell(""))
            continue
        low, high = score["over_classes"]
        worse = bool(lowered({metric: score["value"]}, reference))
        cells.append(TableCell(f"{score['value']:.1f}", f"{low:.1f} – {high:.1f}", strong=True, worse=worse))
    return cells


def _untrained(tested: Sequence[Findings], part: str, metrics: Sequence[str]) -> list[tuple[TableCell, ...]]:
    """The other rows of the runs' own tables, once; runs on the same data share those before training."""
    rows: dict[tuple[str, ...], tuple[TableCell, ...]] = {}
    differ = len({_setting(findings.scores[part]) for findings in tested}) > 1
    for findings in tested:
        for row, tests in findings.run.metrics.get("table", {}).items():
            if row == "trained" or part not in tests:
                continue
            last_epoch = row == "trained, last epoch" and len(tested) > 1
            name = f"{findings.name}, last epoch" if last_epoch else row
            name = f"{name}, {findings.name}" if differ and not row.startswith("trained") else name
            cells = [f"{tests[part][m]:.1f}" if m in tests[part] else "" for m in metrics]
            rows.setdefault((name, *cells), (TableCell(name), *map(TableCell, cells)))
    return list(rows.values())


def _paper(tested: Sequence[Findings], part: str, metrics: Sequence[str]) -> tuple[list[Any], list[str]]:
    rows, notes = {}, {}
    for findings in tested:
        config = findings.run.config
        expected = paper_row(config) if config else None
        if config and expected and part in expected.numbers:
            numbers = expected.numbers[part]
            cells = [TableCell(f"{numbers[m]:.1f}" if m in numbers else "") for m in metrics]
            arm = "with IAA" if config.augment.copies else "baseline"
            name = TableCell(f"paper, {arm}", detail=", ".join(expected.tables))
            rows[expected.preset, arm] = (name, *cells)
            if expected.departures:
                departures = ", ".join(expected.departures)
                notes[findings.name] = f"{findings.name} departs from the paper's recipe: {departures}."
    return list(rows.values()), list(notes.values())


def _name(findings: Findings, *, alone: bool) -> TableCell:
    name = "trained" if alone and findings.run.metrics else findings.name
    return TableCell(name, detail=_epoch(findings), strong=True)


def _epoch(findings: Findings) -> str:
    metrics = findings.run.metrics
    if not metrics:
        return ""
    if "ladder" in metrics:
        return f"{metrics['ladder']['chosen']}, chosen on held-out classes"
    if findings.run.config and not findings.run.config.trains:
        return "computed, not trained"
    chosen = "best on held-out classes" if metrics.get("select") == "best" else "the last"
    return f"epoch {metrics['epoch'] + 1}, {chosen}"


def _gain(difference: Difference) -> TableCell:
    p = "p < 0.001" if difference.p_classes < 0.001 else f"p = {difference.p_classes:.3f}"
    clear = difference.low > 0 or difference.high < 0
    interval = f"{_signed(difference.low)} to {_signed(difference.high)}"
    return TableCell(
        _signed(difference.mean), f"{interval}\n{p}", strong=clear, worse=clear and difference.mean < 0
    )


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "\N{MINUS SIGN}")


def _setting(scores: Scores) -> str:
    gallery = "each against all others" if scores.gallery is None else f"against {scores.gallery:,} others"
    text = f"{scores.queries:,} queries of {scores.classes:,} classes, {gallery}."
    if scores.without_positive:
        text += f" {scores.without_positive:,} queries have no match and are left out."
    return text


def _how_to_read(all_findings: Sequence[Findings], tested: Sequence[Findings]) -> list[str]:
    notes = [
        "Small numbers are 95 % intervals by bootstrap over classes: how much the score would vary with "
        "other classes of this kind and the same weights."
    ]
    if any(findings.against_first for findings in tested):
        notes.append(
            "Differences are paired, query by query; p-values by flipping the signs of whole classes. They "
            "hold for these weights: another seed gives other weights."
        )
    seeds = {findings.run.config.seed for findings in all_findings if findings.run.config}
    if seeds:
        count = "One seed" if len(seeds) == 1 else f"{len(seeds)} seeds, one run each"
        notes.append(f"{count}. `iaa compare` trains several and tests the difference between two recipes.")
    return notes


def run_facts(findings: Findings) -> FactTable:
    """The run in a few lines; every field of its configuration folded away."""
    run = findings.run
    if run.config is None:
        meta = findings.data.meta.items()
        shown = [(key, str(value)) for key, value in meta if isinstance(value, str | int | float)]
        return FactTable(findings.name, (("file", str(run.path)), *shown))
    rows = _recipe(run.config)
    if run.metrics:
        train = run.metrics["train"]
        rows.append(("trained on", f"{train['samples']:,} samples of {train['classes']:,} classes"))
        rows.append(("training took", _duration(run.metrics["training_seconds"])))
    if run.environment:
        machine = run.environment["machine"]
        rows.append(("machine", f"{machine['system']}, {machine['cores']} cores"))
        versions = [f"{name} {number}" for name, number in run.environment["versions"].items() if number]
        rows.append(("versions", ", ".join(versions)))
        commit = run.environment["commit"] or "unknown"
        rows.append(("started", f"{run.environment['started']}, commit {commit}"))
    fields = [(name, str(value)) for name, value in flat_fields(run.config).items()]
    return FactTable(findings.name, tuple(rows), tuple(fields))


def _recipe(config: Config) -> list[tuple[str, str]]:
    options, network, batch = config.augment, config.network, config.batch
    model = config.model if config.vectors_file is None else "a head on given vectors"
    augment = "none (baseline)"
    if options.copies:
        correction = f"neighbours {options.neighbors}" if options.correction else "no correction"
        augment = (
            f"{options.copies} copies, strength {options.strength:g}, {options.covariance}, {correction}"
        )
    facts = [("data", config.data), ("network", f"{model}, {network.dim or 'all'} dimensions")]
    if not config.trains:
        return [*facts, ("head", f"{network.head}: nothing was trained")]
    return [
        *facts,
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
