"""The class atlas as the page's script reads it, and samples that may carry a wrong label."""

from typing import Any

from iaa.analysis.atlas import ClassRow
from iaa.report.blocks import Atlas, Cell, Strip, Strips, Table, Tile
from iaa.report.findings import Findings
from iaa.report.thumbnails import sprite

ROWS = 10_000
"""Classes in an atlas at most: a page has to be opened."""
CELLS = 4000
"""Small images in an atlas at most."""
SIDE = 40
COLUMNS = (
    ("class", "text", "The class; its first image."),
    ("n", "whole", "Samples."),
    ("MAP@R", "percent", "Mean average precision at R of its samples among the classes here, in percent."),
    ("R@1", "percent", "Samples whose nearest neighbour is of the same class, in percent."),
    ("variance", "number", "Sum of its own variances over dimensions."),
    ("corrected", "number", "The same after neighbour correction."),
    ("rank", "number", "Effective rank: in how many directions it varies."),
    ("borrows", "share", "Weight of the correction, alpha (Eq. 16)."),
    ("moved", "share", "How far the correction moved its variances, over their own length."),
    ("lenders", "lenders", "Classes that lend most, with their shares."),
    ("extremes", "images", "Its samples farthest from the mean of the others."),
)


def atlas(one: Findings) -> Atlas | None:
    """Rows in columns; lenders point at rows, images at places in one sheet of small images."""
    if one.atlas is None:
        return None
    rows = one.atlas.classes[:ROWS]
    place = {row.label: number for number, row in enumerate(rows)}
    ids = _images(one, rows)
    where = {id: number for number, id in enumerate(ids)}
    sheet = sprite(one.images, ids, side=SIDE) if ids else None
    cells = [
        [
            row.name,
            row.count,
            _score(one, "MAP@R", row.label),
            _score(one, "R@1", row.label),
            _short(row.total_variance),
            _short(row.corrected_variance),
            _short(row.effective_rank),
            _short(row.alpha),
            _short(row.moved),
            [[place[lender.label], _short(lender.share)] for lender in row.lenders if lender.label in place],
            [where[sample.id] for sample in row.extremes if sheet and sample.id in where],
        ]
        for row in rows
    ]
    first = _first(one)
    data: dict[str, Any] = {
        "columns": [list(column) for column in COLUMNS],
        "rows": cells,
        "examples": [where.get(first.get(row.label, ""), -1) if sheet else -1 for row in rows],
        "sheet": sheet[0] if sheet else None,
        "across": sheet[1] if sheet else 0,
        "tall": -(-len(ids) // sheet[1]) if sheet else 0,
        "side": SIDE,
    }
    left = len(one.atlas.classes) - len(rows)
    more = f"; {left:,} more are written by `iaa analyze atlas --out`" if left else ""
    return Atlas(f"{one.name}{more}", data)


def suspects(one: Findings, *, shown: int = 12) -> Strips | Table | None:
    """Samples that another class explains better than their own; with images where there are any."""
    if one.atlas is None or not one.atlas.suspects:
        return None
    first, found = _first(one), one.atlas.suspects[:shown]
    title = "Labels worth a look"
    words = (
        "Samples whose embedding another class explains better than their own class does without them, most "
        "suspicious first. A hint for the eye, no proof: a poor embedding looks the same as a wrong label."
    )
    if one.around is None:  # no images
        rows = [
            (Cell(suspect.id), Cell(suspect.name), Cell(suspect.other_name), Cell(f"{suspect.evidence:.2f}"))
            for suspect in found
        ]
        return Table(title, ("sample", "labelled", "nearer to", "evidence, nats"), tuple(rows), (words,))

    def example(label: int, name: str, note: str) -> Tile:
        return Tile(one.images.uri(first[label]) if label in first else None, name, note=note)

    strips = []
    for suspect in found:
        sample = Tile(one.images.uri(suspect.id), suspect.id.rpartition("/")[2], "query")
        own = example(suspect.label, suspect.name, "labelled")
        other = example(suspect.other_label, suspect.other_name, "nearer to")
        strips.append(Strip(sample, (("", (own, other)),)))
    return Strips(title, words, tuple(strips), small=True)


def _first(one: Findings) -> dict[int, str]:
    """The id of each class's first sample."""
    found: dict[int, str] = {}
    for label, id in zip(one.classes.labels.tolist(), one.classes.ids, strict=True):
        found.setdefault(label, id)
    return found


def _images(one: Findings, rows: tuple[ClassRow, ...]) -> list[str]:
    """Ids for the sheet: an example of each class, then as many extremes as there is room for."""
    first = _first(one)
    ids = [first[row.label] for row in rows if row.label in first][:CELLS]
    each = max(0, CELLS - len(ids)) // max(1, len(rows))
    extremes = [sample.id for row in rows for sample in row.extremes[:each]]
    return list(dict.fromkeys([*ids, *extremes]))


def _score(one: Findings, metric: str, label: int) -> float | None:
    found = one.class_scores.get(metric, {}).get(label)
    return None if found is None else round(found, 1)


def _short(value: float | None) -> float | None:
    """Four digits are enough for the eye, and for the page's size."""
    return None if value is None else float(f"{value:.4g}")
