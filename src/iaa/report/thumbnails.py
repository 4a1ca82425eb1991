"""Images of a page: found by the ids of an embeddings file, and embedded small."""

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
    """Finds images by id: as paths, or below one of some folders; each is read once."""

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self.folders = list(folders)
        self._uris: dict[tuple[str, int], str | None] = {}

    def path(self, id: str) -> Path | None:
        """The file of an id, if there is one."""
        ref = parse_ref(id)
        if not isinstance(ref, ImageRef):
            return None
        name = Path(ref.path)
        ends = [Path(*name.parts[cut:]) for cut in range(name.is_absolute(), max(1, len(name.parts) - 1))]
        below = [folder / end for end in ends for folder in self.folders]  # data may have moved
        whole = len(self.folders)  # the id as it is, below the folders
        for file in (name, *below) if name.is_absolute() else (*below[:whole], name, *below[whole:]):
            if file.suffix and os.path.isfile(file):  # an id may be any text, too long for a path even
                return file
        return None

    def square(self, id: str, side: int = SIDE) -> "Image | None":
        """The middle of an image, cut square and not enlarged; None if it is not there or broken."""
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
            found = self.square(id, side)
            self._uris[id, side] = None if found is None else data_uri(found)
        return self._uris[id, side]

    def pixels(self, id: str, side: int) -> UInt8[Tensor, "3 {side} {side}"] | None:
        """An image as numbers, brought to ``side`` pixels."""
        found = self.square(id, 2 * side)
        if found is None:
            return None
        return torch.from_numpy(np.array(found.resize((side, side)))).permute(2, 0, 1)


def data_uri(image: "Image", *, quality: int = 80) -> str:
    """WebP, or JPEG where Pillow was built without it."""
    features: Any = need("PIL.features", extra="images")
    kind = "webp" if features.check("webp") else "jpeg"
    out = io.BytesIO()
    image.save(out, kind, quality=quality)
    return f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}"


def from_tensor(pixels: UInt8[Tensor, "3 h w"]) -> "Image":
    """An image from numbers."""
    pil: Any = need("PIL.Image", extra="images")
    made: Image = pil.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    return made


def sprite(images: Thumbnails, ids: Sequence[str], *, side: int = 40) -> tuple[str, int] | None:
    """Many small images as one, and how many stand in a row; None if there are none at all.

    What is not there stays blank: place ``i`` is row ``i // columns``, column ``i % columns``.
    """
    pil: Any = need("PIL.Image", extra="images")
    columns = max(1, min(64, len(ids)))
    sheet = pil.new("RGB", (columns * side, -(-len(ids) // columns) * side), "white")
    some = False
    for place, id in enumerate(ids):
        found = images.square(id, 2 * side)
        if found is not None:
            some = True
            sheet.paste(found.resize((side, side)), (place % columns * side, place // columns * side))
    return (data_uri(sheet, quality=70), columns) if some else None
