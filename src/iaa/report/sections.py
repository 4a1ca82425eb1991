"""The sections of a page, each from the findings of all runs; None where there is nothing to show."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from iaa.report import figures, image_blocks
from iaa.report.blocks import Block, Figures, Paragraph, Section, Table, TableCell
from iaa.report.findings import Findings
from iaa.report.tables import run_facts, score_tables


def results(all_findings: Sequence[Findings]) -> Section:
    """The scores, with those before training and those of the paper."""
    return Section("results", "Results", "", list(score_tables(all_findings)))


def retrieval(all_findings: Sequence[Findings]) -> Section | None:
    """Strips of queries and retrieved images (Fig. 13); runs with the same queries are shown together."""
    groups: dict[tuple[str, ...], list[Findings]] = {}
    for findings in all_findings:
        if findings.typical is not None:
            ids = tuple(findings.data.ids[row] for row in findings.typical.query.tolist())
            groups.setdefault(ids, []).append(findings)
    blocks: list[Block] = []
    for together in groups.values():
        owners = f": {', '.join(findings.name for findings in together)}" if len(groups) > 1 else ""
        typical = "Not picked by hand. The query is on the left, the images most similar to it follow."
        worst = "Lowest MAP@R, of different classes; among equals, those most similar to a wrong image."
        blocks += [
            image_blocks.query_strips(together, "typical", f"Queries drawn at random{owners}", typical),
            image_blocks.query_strips(together, "worst", f"The worst queries{owners}", worst),
        ]
    lead = "Frames and marks show whether an image is of the query's class; numbers are similarities."
    return Section("retrieval", "Retrieved images", lead, blocks) if blocks else None


def training(all_findings: Sequence[Findings]) -> Section | None:
    """Curves from the log, and the pairs that mining chose (Fig. 10)."""
    logs = [findings.run.log for findings in all_findings if findings.run.log]
    if not logs:
        return None
    curves = [figures.losses(logs)]
    if all(log.validation for log in logs):
        curves.append(figures.validation(logs))
    mined = [findings.mining for findings in all_findings if findings.mining and findings.mining.chooses]
    if mined:
        curves += [figures.mining(mined, parts=(part,)) for part in ("negatives", "shares")]
    return Section("training", "Training", "", [Figures(tuple(curves))])


def correlation(all_findings: Sequence[Findings]) -> Section | None:
    """The verdict on the paper's premise, and its evidence (Tables I, VIII; Fig. 3, 4)."""
    blocks: list[Block] = []
    for findings in all_findings:
        result = findings.correlation
        if result is None:
            continue
        verdict = result.verdict
        level = {"strong": "good", "weak": "doubtful", "none": "bad"}.get(verdict.level, "")
        level = "doubtful" if level == "bad" and verdict.helps else level
        owner = f"{findings.name}: " if len(all_findings) > 1 else ""
        blocks.append(Paragraph(owner + verdict.text, verdict.rests_on, level))
        curves = [result.average, *result.examples]
        first, *others = [figures.correlation(result, curves=[curve]) for curve in curves]
        blocks.append(Figures((first, *(replace(figure, caption="") for figure in others))))
        blocks.append(_coefficients(findings))
        more = [figures.variety(findings.variety)] if findings.variety else []
        more += [figures.weights(findings.weights)] if findings.weights else []
        if more:
            blocks.append(Figures(tuple(more)))
    if not blocks:
        return None
    lead = (
        "Neighbour correction assumes that classes with similar means vary in similar ways. "
        f"Here this is tested on {_which_classes(all_findings)}."
    )
    return Section("correlation", "Can classes lend to each other?", lead, blocks)


def _coefficients(findings: Findings) -> Table:
    result = findings.correlation
    assert result is not None
    powers = list(dict.fromkeys(item.p for item in result.coefficients))
    pairs = dict.fromkeys((item.squared, item.root) for item in result.coefficients)
    rows = tuple(
        (
            TableCell(f"{'squared' if squared else 'plain'} means, {'deviations' if root else 'variances'}"),
            *(TableCell(f"{result.value(p=p, squared=squared, root=root):.2f}") for p in powers),
        )
        for squared, root in pairs
    )
    note = f"{result.classes:,} classes with at least {result.min_samples} samples; mean over classes."
    return Table("Spearman coefficients by metric", ("", *(f"p = {p:g}" for p in powers)), rows, (note,))


def space(all_findings: Sequence[Findings]) -> Section | None:
    """Similarities of pairs (Fig. 12) and t-SNE (Fig. 14)."""
    blocks: list[Block] = []
    pairs = [findings.similarity for findings in all_findings if findings.similarity]
    histograms = [figures.similarity([result]) for result in pairs]
    if len(pairs) > 1:
        histograms = [
            replace(figure, title=result.name) for figure, result in zip(histograms, pairs, strict=True)
        ]
    if histograms:
        blocks.append(Figures(tuple(histograms)))
    for findings in all_findings:
        if findings.projection is not None:
            owner = f" of {findings.name}" if len(all_findings) > 1 else ""
            names = {
                label: findings.class_name(label) for label in findings.projection.labels.unique().tolist()
            }
            maps = [
                figures.tsne(findings.projection, names, part, title=f"{part.capitalize()}{owner}")
                for part in ("originals", "synthetics")
            ]
            blocks.append(Figures(tuple(maps)))
    lead = (
        "Similarities of positive and negative pairs of the test classes, and a map of ten of "
        f"{_which_classes(all_findings)} with their synthetics."
    )
    return Section("space", "The embedding space", lead, blocks) if blocks else None


def synthetics(all_findings: Sequence[Findings]) -> Section | None:
    """Synthetics as images (Fig. 15)."""
    lead = f"Drawn from the corrected statistics of {_which_classes(all_findings)}, as the final network "
    lead += "sees them."
    blocks = _present(all_findings, image_blocks.decoded_strips, image_blocks.neighbour_strips)
    return Section("synthetics", "What synthetics look like", lead, blocks) if blocks else None


def atlas(all_findings: Sequence[Findings]) -> Section | None:
    """All classes, sortable and searchable; labels worth checking."""
    lead = f"All of {_which_classes(all_findings)}: how each varies, which classes lend to it, how well it "
    lead += "is retrieved."
    blocks = _present(all_findings, image_blocks.atlas, image_blocks.suspects)
    return Section("classes", "Classes", lead, blocks) if blocks else None


def _present(all_findings: Sequence[Findings], *parts: Callable[[Findings], Block | None]) -> list[Block]:
    """The blocks that every run has something to show for."""
    blocks = (part(findings) for findings in all_findings for part in parts)
    return [block for block in blocks if block is not None]


def _which_classes(all_findings: Sequence[Findings]) -> str:
    names = {"train": "training", "val": "held-out", "test": "test", "all": "given"}
    kinds = dict.fromkeys(names[findings.split] for findings in all_findings)
    return f"the {' and '.join(kinds)} classes"


def cost(all_findings: Sequence[Findings]) -> Section | None:
    """Time of the run from its log; time and memory by copies where they were measured (Fig. 11)."""
    rows, blocks = [], list[Block]()
    for findings in all_findings:
        log = findings.run.log
        if log:
            total, statistics = sum(log.seconds), sum(log.statistics_seconds)
            share = f"{100 * statistics / total:.1f} %" if total else ""
            speed = f"{log.images_per_second[-1]:,.0f}"
            cells = (f"{total / 60:.1f}", f"{total / len(log.seconds):.1f}", share, speed)
            rows.append((TableCell(findings.name), *map(TableCell, cells)))
        if findings.cost is not None:
            parts = [figures.cost(findings.cost, parts=(part,)) for part in ("time", "memory")]
            blocks += [Figures(tuple(parts)), Paragraph("Measured on: " + " ".join(findings.cost.what))]
    if rows:
        head = ("", "minutes", "seconds an epoch", "class statistics", "images a second")
        note = "From the run's own log; the last column is of the last epoch."
        blocks.insert(0, Table("Time of training", head, tuple(rows), (note,)))
    return Section("cost", "Cost", "", blocks) if blocks else None


def configuration(all_findings: Sequence[Findings]) -> Section:
    """Configurations, machine, versions."""
    return Section("run", "Configuration", "", [run_facts(findings) for findings in all_findings])
