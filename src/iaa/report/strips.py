"""Strips of images: queries and their answers (Fig. 13), synthetics beside real and decoded images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iaa.analysis.example_queries import Answers
from iaa.errors import need
from iaa.report.blocks import Strip, Strips, Tile
from iaa.report.findings import Findings
from iaa.report.thumbnails import data_uri, from_tensor

FRAMES = {"query": "#1f6cb5", "right": "#0b7268", "wrong": "#b3400f", "": "#dcd8d0"}


def answers(every: Sequence[Findings], which: str, *, title: str, words: str) -> Strips:
    """Queries, and below each other what every run that was asked the same answers."""
    found = [(one, some) for one in every if (some := _asked(one, which)) is not None]
    first, asked = found[0]
    strips = []
    for place, row in enumerate(asked.query.tolist()):
        name = first.class_name(int(first.data.labels[row]))
        query = Tile(first.images.uri(first.data.ids[row]), name, "query")
        rows = [(one.name if len(found) > 1 else "", _answers(one, some, place)) for one, some in found]
        strips.append(Strip(query, tuple(rows)))
    return Strips(title, words, tuple(strips))


def _asked(one: Findings, which: str) -> Answers | None:
    return one.worst if which == "worst" else one.typical


def _answers(one: Findings, found: Answers, place: int) -> tuple[Tile, ...]:
    near, values, right = (part[place].tolist() for part in (found.nearest, found.similarity, found.right))
    return tuple(
        Tile(
            one.images.uri(one.data.ids[row]),
            one.class_name(int(one.data.labels[row])),
            "right" if good else "wrong",
            f"{value:.2f}",
        )
        for row, value, good in zip(near, values, right, strict=True)
    )


def real_neighbours(one: Findings, *, shown: int = 6) -> Strips | None:
    """Around samples: the real images nearest to each synthetic, none of them the sample itself."""
    around = one.around
    if around is None:
        return None
    strips = []
    for place, row in enumerate(around.rows[:shown].tolist()):
        sample = Tile(
            one.images.uri(one.classes.ids[row]), one.class_name(int(one.classes.labels[row])), "query"
        )
        tiles = [
            Tile(
                one.images.uri(one.classes.ids[near]),
                one.class_name(int(one.classes.labels[near])),
                "right" if good else "wrong",
                f"{value:.2f}",
            )
            for near, value, good in zip(
                around.nearest[place, :, 0].tolist(),
                around.similarity[place, :, 0].tolist(),
                around.right[place, :, 0].tolist(),
                strict=True,
            )
        ]
        strips.append(Strip(sample, (("", tuple(tiles)),)))
    synthetic, real = around.agreement()
    words = (
        f"Left a sample, right the real image nearest to each of {around.z.shape[1]} synthetics drawn "
        f"around it, the sample itself left out. Around {len(around.rows):,} samples, "
        f"{100 * synthetic:.0f} % of the synthetics have an image of their own class nearest; of the "
        f"samples themselves, {100 * real:.0f} % do."
    )
    return Strips("Nearest real images", words, tuple(strips))


def decoded(one: Findings) -> Strips | None:
    """Fig. 15: an image, its reconstruction, and synthetics, all by the decoder."""
    found = one.decoded
    if found is None:
        return None
    strips = []
    for place, name in enumerate(found.names):
        own = Tile(_uri(found.reconstructions[place]), "rebuilt", "")
        others = [Tile(_uri(pixels), f"drawn {n}", "") for n, pixels in enumerate(found.synthetics[place], 1)]
        strips.append(Strip(Tile(_uri(found.images[place]), name, "query"), (("", (own, *others)),)))
    words = (
        "Left an image the decoder has not seen, then its reconstruction, then synthetics drawn around its "
        f"embedding. The decoder learned from {found.seen:,} images in {found.epochs} epochs and explains "
        f"{100 * found.explained:.0f} % of the variance of {found.held_out:,} held-out images: what it "
        "blurs, the embedding leaves open or the decoder has not learned."
    )
    return Strips("Decoded to pixels", words, tuple(strips))


def sheet(strips: Strips, path: str | Path, *, side: int = 112) -> Path:
    """The same as an image file: a row for each answer row, framed, on white."""
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


def _opened(tile: Tile, side: int) -> Any:
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
