"""An embeddings file with images on disk and class names that want to be code."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from iaa import Embeddings
from iaa.report.blocks import AtlasBlock
from iaa.report.image_blocks import COLUMNS

NASTY = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    '"><b onmouseover=alert(3)>bold</b>',
    "$x^{2$ {{ 7 * 7 }} `code` _",
    "_begins low",
    "日本語 & < > ' \"",
)


def name(label: int) -> str:
    return NASTY[label] if label < len(NASTY) else f"class {label}"


def embeddings(folder: Path, *, classes: int = 60, each: int = 4, dim: int = 6, seed: int = 0) -> Embeddings:
    """Every class a cloud around its mean; every image of one colour, its class's."""
    generator = torch.Generator().manual_seed(seed)
    means = 2 * torch.randn(classes, dim, generator=generator)
    labels = torch.arange(classes).repeat_interleave(each)
    z = means[labels] + 0.4 * torch.randn(len(labels), dim, generator=generator)
    ids = [f"{label}/{number}.png" for label in range(classes) for number in range(each)]
    for id, label in zip(ids, labels.tolist(), strict=True):
        (folder / id).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((12, 16, 3), colour(label), dtype=np.uint8)).save(folder / id)
    meta = {"root": str(folder)}
    return Embeddings(z, labels, ids, {label: name(label) for label in range(classes)}, meta=meta)


def atlas(name: str, rows: int = 3) -> AtlasBlock:
    """Rows as the page's script reads them, each lending to the first."""
    cells = [[f"{name} {row}", 4, 50.0, 50.0, 1.0, 1.0, 2.0, 0.5, 0.1, [[0, 0.5]], []] for row in range(rows)]
    data = {"columns": [list(column) for column in COLUMNS], "rows": cells, "examples": [-1] * rows}
    return AtlasBlock(name, data | {"sheet": None, "across": 0, "tall": 0, "side": 40})


def colour(label: int) -> tuple[int, int, int]:
    return (40 * label % 256, 90 * label % 256, 170 * label % 256)
