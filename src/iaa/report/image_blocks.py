"""Blocks with images: retrieved images (Fig. 13), synthetics (Fig. 15), and the atlas of all classes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from iaa.analysis.atlas import ClassRow
from iaa.errors import need
from iaa.report.blocks import AtlasBlock, Strip, Strips, StripTile, Table, TableCell
from iaa.report.findings import Findings
from iaa.report.thumbnails import data_uri, from_tensor, sprite
from iaa.retrieval.embeddings import Embeddings

FRAMES = {"query": "#1f6cb5", "right": "#0b7268", "wrong": "#b3400f", "": "#dcd8d0"}
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


def query_strips(all_findings: Sequence[Findings], which: str, title: str, caption: str) -> Strips:
    """Queries (``typical`` or ``worst``) and the images that every run retrieves for them."""
    retrieved = [(findings, getattr(findings, which)) for findings in all_findings]
    retrieved = [(findings, result) for findings, result in retrieved if result is not None]
    first, queries = retrieved[0]
    strips = []
    for position, row in enumerate(queries.query.tolist()):
        query = _tile(first, first.data, row, "query")
        rows = []
        for findings, result in retrieved:
            parts = (part[position] for part in (result.nearest, result.similarity, result.right))
            name = findings.name if len(retrieved) > 1 else ""
            rows.append((name, _neighbour_tiles(findings, findings.data, *parts)))
        strips.append(Strip(query, tuple(rows)))
    return Strips(title, caption, tuple(strips))


def _neighbour_tiles(
    findings: Findings, data: Embeddings, rows: Tensor, similarities: Tensor, right: Tensor
) -> tuple[StripTile, ...]:
    """Neighbours with their similarity, framed by whether they are of the right class."""
    columns = (rows.tolist(), similarities.tolist(), right.tolist())
    return tuple(
        _tile(findings, data, row, "right" if same else "wrong", f"{similarity:.2f}")
        for row, similarity, same in zip(*columns, strict=True)
    )


def _tile(findings: Findings, data: Embeddings, row: int, frame: str, note: str = "") -> StripTile:
    name = findings.class_name(int(data.labels[row]))
    return StripTile(findings.images.uri(data.ids[row]), name, frame, note)


def neighbour_strips(findings: Findings, *, shown: int = 6) -> Strips | None:
    """Samples, and the real image nearest to each of their synthetics, the sample itself left out."""
    around = findings.around
    if around is None:
        return None
    strips = []
    for position, row in enumerate(around.rows[:shown].tolist()):
        sample = _tile(findings, findings.classes, row, "query")
        parts = (part[position, :, 0] for part in (around.nearest, around.similarity, around.right))
        strips.append(Strip(sample, (("", _neighbour_tiles(findings, findings.classes, *parts)),)))
    synthetic, real = around.agreement()
    caption = (
        f"Left a sample, right the real image nearest to each of {around.z.shape[1]} synthetics drawn "
        f"around it, the sample itself left out. Around {len(around.rows):,} samples, "
        f"{100 * synthetic:.0f} % of the synthetics have an image of their own class nearest; of the "
        f"samples themselves, {100 * real:.0f} % do."
    )
    return Strips("Nearest real images", caption, tuple(strips))


def decoded_strips(findings: Findings) -> Strips | None:
    """An image, its reconstruction, and synthetics, all by the decoder (Fig. 15)."""
    decoded = findings.decoded
    if decoded is None:
        return None
    strips = []
    for position, name in enumerate(decoded.names):
        own = StripTile(_uri(decoded.reconstructions[position]), "reconstruction")
        synthetics = enumerate(decoded.synthetics[position], 1)
        others = [StripTile(_uri(pixels), f"synthetic {number}") for number, pixels in synthetics]
        strips.append(
            Strip(StripTile(_uri(decoded.images[position]), name, "query"), (("", (own, *others)),))
        )
    caption = (
        "Left an image the decoder has not seen, then its reconstruction, then synthetics drawn around its "
        f"embedding. The decoder was trained on {decoded.seen:,} images for {decoded.epochs} epochs and "
        f"explains {100 * decoded.explained:.0f} % of the variance of {decoded.held_out:,} held-out images: "
        "what is blurred is not in the embedding, or the decoder has not learned it."
    )
    return Strips("Decoded to pixels", caption, tuple(strips))


def contact_sheet(strips: Strips, path: str | Path, *, side: int = 112) -> Path:
    """Strips as an image file: a line for each row, framed, on white."""
    pil: Any = need("PIL.Image", extra="images")
    lines = [[strip.query, *tiles] for strip in strips.strips for _, tiles in strip.rows]
    gap, frame = 8, 4
    cell = side + 2 * frame + gap
    canvas = pil.new("RGB", (cell * max(map(len, lines)) + 2 * gap, cell * len(lines) + gap), "white")
    for y, line in enumerate(lines):
        for x, tile in enumerate(line):
            left, top = gap + x * cell + (gap if x else 0), gap + y * cell
            canvas.paste(FRAMES[tile.frame], (left, top, left + side + 2 * frame, top + side + 2 * frame))
            canvas.paste(_opened(tile, side), (left + frame, top + frame))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.save(path)
    return path


def _opened(tile: StripTile, side: int) -> Any:
    import base64
    import io

    pil: Any = need("PIL.Image", extra="images")
    if tile.uri is None:
        return pil.new("RGB", (side, side), "#f4f2ee")
    return (
        pil.open(io.BytesIO(base64.b64decode(tile.uri.partition(",")[2]))).convert("RGB").resize((side, side))
    )


def _uri(pixels: Any) -> str:
    return data_uri(from_tensor(pixels), quality=90)


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
