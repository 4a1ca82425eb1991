"""What README and the guides show, made from free images: contact sheet, table, results, search page.

python docs/scripts/screenshots.py [WORKING-FOLDER]     minutes; needs Chromium
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

import iaa

DOCS = Path(__file__).parents[1]
sys.path.insert(0, str(DOCS.parent / "examples"))
import free_images  # noqa: E402

IMAGES = DOCS / "images"
SIDE, GAP, BORDER = 112, 10, 5
WIDTH = 88
"""Characters of a line in a text block."""
RIGHT, WRONG, QUERY = "#0f9d6c", "#d9480f", "#455a64"


def main(work: Path) -> None:
    """Draw the images, follow the guide with them, and keep what it shows."""
    photos = work / "photos"
    if not photos.exists():
        free_images.write(photos, classes=40, per_class=12)
    _iaa("data", "sheet", f"folder:{photos}", "--out", str(work / "sheet.png"))
    with Image.open(work / "sheet.png") as sheet:
        _save(sheet.convert("RGB").crop((0, 0, sheet.width, min(sheet.height, 500))), "contact-sheet.png")
    run = work / "runs" / "photos"
    if not (run / "metrics.json").exists():
        _iaa("train", "--data", f"folder:{photos}", "--run.out", str(run.parent), "--run.name", run.name)
    _write_table(_iaa("train", "--resume", str(run)).partition(str(run))[0])
    queries = _queries(run)
    _save(_strip(run, queries), "retrieval.png")
    with _served(run) as address:
        _browse(address, queries[0])


def _write_table(printed: str) -> None:
    """The table of the run into the guide, between its marks."""
    guide = DOCS / "own-photos.md"
    before, begin, rest = guide.read_text().partition("<!-- table of the run -->\n")
    end = "<!-- end of the table -->"
    block = "\n".join(textwrap.fill(row, WIDTH) for row in printed.strip().splitlines())
    guide.write_text(f"{before}{begin}```text\n{block}\n```\n{end}{rest.partition(end)[2]}")


def _queries(run: Path, number: int = 3) -> list[Path]:
    """Images of different test classes, drawn by a seed: nobody picked them."""
    embeddings = iaa.Embeddings.load(run / "embeddings.safetensors")
    config = json.loads((run / "config.json").read_text())
    root = Path(config["data"].partition(":")[2])
    rng = np.random.default_rng(0)
    labels = rng.permutation(embeddings.labels.unique().numpy())[:number]
    rows = [int(rng.choice(np.flatnonzero(embeddings.labels.numpy() == label))) for label in labels]
    return [root / embeddings.ids[row] for row in rows]


def _strip(run: Path, queries: list[Path]) -> Image.Image:
    """A row for each query: the query, then the five most similar images, framed by right and wrong."""
    model = iaa.load(run, device="cpu")
    gallery = iaa.Gallery.open(model)
    step = SIDE + GAP
    image = Image.new("RGB", (6 * step + 2 * GAP, len(queries) * step + GAP), "white")
    for row, query in enumerate(queries):
        own = gallery.rows_by_path[str(query.resolve())]
        (hits,) = gallery.search(model.embed([query]), top=5, exclude=[own])
        tiles: list[tuple[Any, str]] = [(query, QUERY)]
        for hit in hits:
            shown = gallery.image(hit.row)
            assert shown is not None
            tiles.append((shown.path, RIGHT if hit.label == query.parent.name else WRONG))
        for column, (path, color) in enumerate(tiles):
            left, top = GAP + column * step + GAP * (column > 0), GAP + row * step
            ImageDraw.Draw(image).rectangle((left, top, left + SIDE - 1, top + SIDE - 1), fill=color)
            with Image.open(path) as tile:
                inner = SIDE - 2 * BORDER
                image.paste(
                    tile.resize((inner, inner), Image.Resampling.LANCZOS), (left + BORDER, top + BORDER)
                )
    return image


@contextmanager
def _served(run: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "iaa", "serve", str(run), "--port", "0", "--no-open", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        try:
            yield re.findall(r"http://\S+", line)[0]
        finally:
            server.terminate()


def _browse(address: str, query: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, width, height in (("desktop", 1100, 760), ("phone", 390, 780)):
            page = browser.new_page(viewport={"width": width, "height": height})
            for _ in range(2):  # the first search also starts the decoders: its time would mislead
                page.goto(address)
                page.set_input_files("input[type=file]", query)
                page.wait_for_load_state("networkidle")
                page.wait_for_timeout(1500)
            page.screenshot(path=IMAGES / f"serve-{name}.png")
            with Image.open(IMAGES / f"serve-{name}.png") as shot:
                _save(shot.convert("RGB"), f"serve-{name}.png")
        browser.close()


def _save(image: Image.Image, name: str) -> None:
    """As a palette of 256 colours, a third of the bytes."""
    IMAGES.mkdir(exist_ok=True)
    image.quantize(256, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)


def _iaa(*words: str) -> str:
    command = [sys.executable, "-m", "iaa", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
