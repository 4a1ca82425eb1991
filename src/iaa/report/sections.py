"""The sections of a page, each from the findings of all runs; what has nothing to show is None."""

from collections.abc import Sequence
from dataclasses import replace

from iaa.report import class_atlas, figures, strips
from iaa.report.blocks import Block, Cell, Figures, Section, Table, Words
from iaa.report.findings import Findings
from iaa.report.tables import score_tables, what_was_run


def results(every: Sequence[Findings]) -> Section:
    """The scores, beside doing nothing and beside the paper."""
    return Section("results", "Results", "", list(score_tables(every)))


def retrieval(every: Sequence[Findings]) -> Section | None:
    """Strips of queries and answers (Fig. 13); runs that were asked the same stand together."""
    groups: dict[tuple[str, ...], list[Findings]] = {}
    for one in every:
        if one.typical is not None:
            ids = tuple(one.data.ids[row] for row in one.typical.query.tolist())
            groups.setdefault(ids, []).append(one)
    blocks: list[Block] = []
    for together in groups.values():
        who = f": {', '.join(one.name for one in together)}" if len(groups) > 1 else ""
        typical = "Nobody has picked them. The query is on the left, its nearest answers follow."
        worst = "Lowest MAP@R, of different classes; among equals, those most similar to a wrong answer."
        blocks += [
            strips.answers(together, "typical", title=f"Queries drawn at random{who}", words=typical),
            strips.answers(together, "worst", title=f"The worst queries{who}", words=worst),
        ]
    lead = "Frames and marks say whether an answer is of the query's class; numbers are similarities."
    return Section("retrieval", "What is found", lead, blocks) if blocks else None


def training(every: Sequence[Findings]) -> Section | None:
    """Curves from the log, and what mining chose (Fig. 10)."""
    logs = [one.run.log for one in every if one.run.log]
    if not logs:
        return None
    drawings = [figures.losses(logs)]
    if all(log.validation for log in logs):
        drawings.append(figures.validation(logs))
    mined = [one.mining for one in every if one.mining and one.mining.chooses]
    if mined:
        if any(value is not None for one in mined for value in one.negatives):
            drawings.append(figures.mining(mined, parts=("negatives",)))
        drawings.append(figures.mining(mined, parts=("shares",)))
    return Section("training", "Training", "", [Figures(tuple(drawings))])


def correlation(every: Sequence[Findings]) -> Section | None:
    """The verdict on the paper's premise, and what it rests on (Tables I, VIII; Fig. 3, 4)."""
    blocks: list[Block] = []
    for one in every:
        found = one.correlation
        if found is None:
            continue
        verdict = found.verdict
        level = {"strong": "good", "weak": "doubtful", "none": "bad"}.get(verdict.level, "")
        level = "doubtful" if level == "bad" and verdict.helps else level
        who = f"{one.name}: " if len(every) > 1 else ""
        blocks.append(Words(who + verdict.text, verdict.rests_on, level))
        curves = [found.average, *found.examples]
        drawn = [figures.correlation(found, curves=[curve]) for curve in curves]
        blocks.append(Figures((drawn[0], *(replace(one, caption="") for one in drawn[1:]))))
        blocks.append(_coefficients(one))
        more = [figures.variety(one.variety)] if one.variety else []
        more += [figures.weights(one.weights)] if one.weights else []
        if more:
            blocks.append(Figures(tuple(more)))
    if not blocks:
        return None
    lead = (
        "Neighbour correction rests on one premise: classes whose means lie close vary in similar ways. "
        f"Here it is put to the test on {_whose(every)}."
    )
    return Section("correlation", "Can classes lend to each other?", lead, blocks)


def _coefficients(one: Findings) -> Table:
    found = one.correlation
    assert found is not None
    powers = list(dict.fromkeys(item.p for item in found.coefficients))
    pairs = dict.fromkeys((item.squared, item.root) for item in found.coefficients)
    rows = tuple(
        (
            Cell(f"{'squared' if squared else 'plain'} means, {'deviations' if root else 'variances'}"),
            *(Cell(f"{found.value(p=p, squared=squared, root=root):.2f}") for p in powers),
        )
        for squared, root in pairs
    )
    note = f"{found.classes:,} classes of {found.min_samples} samples or more; mean over classes."
    return Table("Spearman coefficients by metric", ("", *(f"p = {p:g}" for p in powers)), rows, (note,))


def space(every: Sequence[Findings]) -> Section | None:
    """Similarities of pairs (Fig. 12) and t-SNE (Fig. 14)."""
    blocks: list[Block] = []
    pairs = [one.similarity for one in every if one.similarity]
    first = [figures.similarity([one]) for one in pairs]
    if len(pairs) > 1:
        first = [replace(drawn, title=one.name) for drawn, one in zip(first, pairs, strict=True)]
    if first:
        blocks.append(Figures(tuple(first)))
    for one in every:
        if one.projection is not None:
            who = f" of {one.name}" if len(every) > 1 else ""
            names = {label: one.class_name(label) for label in one.projection.labels.unique().tolist()}
            drawn = [
                figures.tsne(one.projection, names, parts=(part,), title=f"{part.capitalize()}{who}")
                for part in ("originals", "synthetics")
            ]
            blocks.append(Figures(tuple(drawn)))
    lead = (
        "Where positive and negative pairs of the test classes lie, and a map of ten of "
        f"{_whose(every)} with their synthetics."
    )
    return Section("space", "The embedding space", lead, blocks) if blocks else None


def synthetics(every: Sequence[Findings]) -> Section | None:
    """What synthetics are like in images (Fig. 15)."""
    blocks: list[Block] = []
    for one in every:
        for found in (strips.decoded(one), strips.real_neighbours(one)):
            if found is not None:
                blocks.append(found)
    lead = f"Drawn from the corrected statistics of {_whose(every)}, as the final network sees them."
    return Section("synthetics", "What synthetics look like", lead, blocks) if blocks else None


def atlas(every: Sequence[Findings]) -> Section | None:
    """All classes, sortable and searchable; labels worth a look."""
    blocks: list[Block] = []
    for one in every:
        found, doubtful = class_atlas.atlas(one), class_atlas.suspects(one)
        blocks += [block for block in (found, doubtful) if block is not None]
    lead = f"All of {_whose(every)}: how each varies, from whom it borrows, how well it is found."
    return Section("classes", "Classes", lead, blocks) if blocks else None


def _whose(every: Sequence[Findings]) -> str:
    names = {"train": "training", "val": "held-out", "test": "test", "all": "given"}
    kinds = dict.fromkeys(names[one.split] for one in every)
    return f"the {' and '.join(kinds)} classes"


def cost(every: Sequence[Findings]) -> Section | None:
    """Time of the run from its log; time and memory by copies where they were measured (Fig. 11)."""
    rows, blocks = [], list[Block]()
    for one in every:
        log = one.run.log
        if log:
            total, statistics = sum(log.seconds), sum(log.statistics_seconds)
            share = f"{100 * statistics / total:.1f} %" if total else ""
            speed = f"{log.images_per_second[-1]:,.0f}"
            cells = (f"{total / 60:.1f}", f"{total / len(log.seconds):.1f}", share, speed)
            rows.append((Cell(one.name), *map(Cell, cells)))
        if one.cost is not None:
            parts = [figures.cost(one.cost, parts=(part,)) for part in ("time", "memory")]
            blocks += [Figures(tuple(parts)), Words("Measured on: " + " ".join(one.cost.what))]
    if rows:
        head = ("", "minutes", "seconds an epoch", "class statistics", "images a second")
        note = "From the run's own log; the last column is of the last epoch."
        blocks.insert(0, Table("Time of training", head, tuple(rows), (note,)))
    return Section("cost", "Cost", "", blocks) if blocks else None


def ran(every: Sequence[Findings]) -> Section:
    """Configurations, machine, versions."""
    return Section("run", "What was run", "", [what_was_run(one) for one in every])
