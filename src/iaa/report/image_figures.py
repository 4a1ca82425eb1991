"""Strips of images: queries and retrieved images (Fig. 13), synthetics as images (Fig. 15)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from iaa.errors import need
from iaa.report.blocks import Strip, Strips, StripTile
from iaa.report.findings import Findings
from iaa.report.thumbnails import data_uri, from_tensor
from iaa.retrieval.embeddings import Embeddings

FRAMES = {"query": "#1f6cb5", "right": "#0b7268", "wrong": "#b3400f", "": "#dcd8d0"}


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
