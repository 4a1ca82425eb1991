"""A contact sheet: a row per class, its images side by side."""

from pathlib import Path

import numpy as np

from iaa.data.dataset import Dataset
from iaa.data.image_io import read
from iaa.errors import need


def contact_sheet(
    dataset: Dataset, out: Path, *, classes: int = 12, columns: int = 8, side: int = 96
) -> None:
    """Draw the first images of classes spread over the set, upright and on white as a model sees them."""
    pil = need("PIL.Image", extra="images")
    ids = np.unique(dataset.labels)
    shown = ids[np.linspace(0, len(ids) - 1, min(classes, len(ids))).astype(int)]
    canvas = pil.new("RGB", (columns * (side + 4), len(shown) * (side + 4)), "lightgrey")
    for line, label in enumerate(shown):
        for column, row in enumerate(np.flatnonzero(dataset.labels == label)[:columns]):
            box = None if dataset.boxes is None else dataset.boxes[row]
            image = read(dataset.paths[row], at_least=side, box=box)
            image.thumbnail((side, side))
            x, y = column * (side + 4) + 2, line * (side + 4) + 2
            canvas.paste(image, (x + (side - image.width) // 2, y + (side - image.height) // 2))
    canvas.save(out)
