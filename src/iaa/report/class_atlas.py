"""The class atlas as the page's script reads it, and samples that are likely mislabelled."""

from typing import Any

from iaa.analysis.atlas import ClassRow
from iaa.report.blocks import AtlasBlock, Strip, Strips, StripTile, Table, TableCell
from iaa.report.findings import Findings
from iaa.report.thumbnails import sprite

ROWS = 10_000
"""Most classes in an atlas: a browser has to open the page."""
CELLS = 4000
"""Most small images in an atlas."""
SIDE = 40
COLUMNS = (
    ("class", "text", "The class and its first image."),
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


def atlas(findings: Findings) -> AtlasBlock | None:
    """Columns and rows; lenders are row numbers, images are positions in one sheet of small images."""
    if findings.atlas is None:
        return None
    rows = findings.atlas.classes[:ROWS]
    row_of = {row.label: number for number, row in enumerate(rows)}
    ids = _sheet_ids(findings, rows)
    position = {id: number for number, id in enumerate(ids)}
    sheet = sprite(findings.images, ids, side=SIDE) if ids else None
    cells = [
        [
            row.name,
            row.count,
            _score(findings, "MAP@R", row.label),
            _score(findings, "R@1", row.label),
            _rounded(row.total_variance),
            _rounded(row.corrected_variance),
            _rounded(row.effective_rank),
            _rounded(row.alpha),
            _rounded(row.moved),
            [
                [row_of[lender.label], _rounded(lender.share)]
                for lender in row.lenders
                if lender.label in row_of
            ],
            [position[sample.id] for sample in row.extremes if sheet and sample.id in position],
        ]
        for row in rows
    ]
    first = _first_ids(findings)
    data: dict[str, Any] = {
        "columns": [list(column) for column in COLUMNS],
        "rows": cells,
        "examples": [position.get(first.get(row.label, ""), -1) if sheet else -1 for row in rows],
        "sheet": sheet[0] if sheet else None,
        "across": sheet[1] if sheet else 0,
        "tall": -(-len(ids) // sheet[1]) if sheet else 0,
        "side": SIDE,
    }
    omitted = len(findings.atlas.classes) - len(rows)
    more = f"; `iaa analyze atlas --out` writes {omitted:,} more" if omitted else ""
    return AtlasBlock(f"{findings.name}{more}", data)


def suspects(findings: Findings, *, shown: int = 12) -> Strips | Table | None:
    """Samples that another class explains better than their own, with images if there are any."""
    if findings.atlas is None or not findings.atlas.suspects:
        return None
    first, shown_suspects = _first_ids(findings), findings.atlas.suspects[:shown]
    title = "Labels worth checking"
    caption = (
        "Samples whose embedding another class explains better than their own class does without them, most "
        "suspicious first. This is a hint, not a proof: a poor embedding looks the same as a wrong label."
    )
    if findings.around is None:  # no images
        rows = [
            (
                TableCell(suspect.id),
                TableCell(suspect.name),
                TableCell(suspect.other_name),
                TableCell(f"{suspect.evidence:.2f}"),
            )
            for suspect in shown_suspects
        ]
        return Table(title, ("sample", "labelled", "nearer to", "evidence, nats"), tuple(rows), (caption,))

    def example(label: int, name: str, note: str) -> StripTile:
        return StripTile(findings.images.uri(first[label]) if label in first else None, name, note=note)

    strips = []
    for suspect in shown_suspects:
        sample = StripTile(findings.images.uri(suspect.id), suspect.id.rpartition("/")[2], "query")
        own = example(suspect.label, suspect.name, "labelled")
        other = example(suspect.other_label, suspect.other_name, "nearer to")
        strips.append(Strip(sample, (("", (own, other)),)))
    return Strips(title, caption, tuple(strips), small=True)


def _first_ids(findings: Findings) -> dict[int, str]:
    """The id of each class's first sample."""
    first: dict[int, str] = {}
    for label, id in zip(findings.classes.labels.tolist(), findings.classes.ids, strict=True):
        first.setdefault(label, id)
    return first


def _sheet_ids(findings: Findings, rows: tuple[ClassRow, ...]) -> list[str]:
    """Ids for the sheet of images: an example of each class, then as many extremes as fit."""
    first = _first_ids(findings)
    ids = [first[row.label] for row in rows if row.label in first][:CELLS]
    each = max(0, CELLS - len(ids)) // max(1, len(rows))
    extremes = [sample.id for row in rows for sample in row.extremes[:each]]
    return list(dict.fromkeys([*ids, *extremes]))


def _score(findings: Findings, metric: str, label: int) -> float | None:
    score = findings.class_scores.get(metric, {}).get(label)
    return None if score is None else round(score, 1)


def _rounded(value: float | None) -> float | None:
    """Four digits are enough to read, and keep the page small."""
    return None if value is None else float(f"{value:.4g}")
