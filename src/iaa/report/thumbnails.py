"""Small images for a page, looked up by the ids of an embeddings file."""

import base64
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from iaa.data.image_io import UnreadableImage, read
from iaa.data.image_ref import ImageRef, parse_ref
from iaa.errors import need

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 128
"""Of an embedded image, in pixels: sharp at the size it is shown."""


class Thumbnails:
    """Looks up images by id: as paths, or below some folders; each is read once."""

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self.folders = list(folders)
        self._uris: dict[tuple[str, int], str | None] = {}

    def path(self, id: str) -> Path | None:
        """The file of an id, if it exists."""
        ref = parse_ref(id)
        if not isinstance(ref, ImageRef):
            return None
        name = Path(ref.path)
        ends = [Path(*name.parts[cut:]) for cut in range(name.is_absolute(), max(1, len(name.parts) - 1))]
        below = [folder / end for end in ends for folder in self.folders]  # data may have moved
        whole = len(self.folders)  # the first ones: the full id below each folder
        for file in (name, *below) if name.is_absolute() else (*below[:whole], name, *below[whole:]):
            if file.suffix and os.path.isfile(file):  # an id may be any text, even too long for a path
                return file
        return None

    def square(self, id: str, side: int = SIDE) -> "Image | None":
        """The central square of an image, not enlarged; None if it is missing or broken."""
        operations: Any = need("PIL.ImageOps", extra="images")
        file, ref = self.path(id), parse_ref(id)
        if file is None or not isinstance(ref, ImageRef):
            return None
        try:
            image = read(str(file), at_least=2 * side, box=ref.box)
        except UnreadableImage:
            return None
        side = min(side, *image.size)
        cut: Image = operations.fit(image, (side, side))
        return cut

    def uri(self, id: str, side: int = SIDE) -> str | None:
        """An image as a data URI."""
        if (id, side) not in self._uris:
            image = self.square(id, side)
            self._uris[id, side] = None if image is None else data_uri(image)
        return self._uris[id, side]

    def pixels(self, id: str, side: int) -> UInt8[Tensor, "3 {side} {side}"] | None:
        """An image as a tensor, resized to ``side`` pixels."""
        image = self.square(id, 2 * side)
        if image is None:
            return None
        return torch.from_numpy(np.array(image.resize((side, side)))).permute(2, 0, 1)


def data_uri(image: "Image", *, quality: int = 80) -> str:
    """WebP, or JPEG where Pillow was built without it."""
    features: Any = need("PIL.features", extra="images")
    kind = "webp" if features.check("webp") else "jpeg"
    out = io.BytesIO()
    image.save(out, kind, quality=quality)
    return f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}"


def from_tensor(pixels: UInt8[Tensor, "3 h w"]) -> "Image":
    """An image from a tensor."""
    pil: Any = need("PIL.Image", extra="images")
    image: Image = pil.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    return image


def sprite(images: Thumbnails, ids: Sequence[str], *, side: int = 40) -> tuple[str, int] | None:
    """Many small images in one, and the number of columns; None if no image can be read.

    Image ``i`` is in row ``i // columns`` and column ``i % columns``; missing images stay blank.
    """
    pil: Any = need("PIL.Image", extra="images")
    columns = max(1, min(64, len(ids)))
    sheet = pil.new("RGB", (columns * side, -(-len(ids) // columns) * side), "white")
    readable = 0
    for number, id in enumerate(ids):
        image = images.square(id, 2 * side)
        if image is not None:
            readable += 1
            sheet.paste(image.resize((side, side)), (number % columns * side, number // columns * side))
    return (data_uri(sheet, quality=70), columns) if readable else None
