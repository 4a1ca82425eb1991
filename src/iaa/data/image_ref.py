"""References to what an embedding was made of: an image file with an optional box, or a row of vectors.

A reference is written as a path and a fragment: ``photo.jpg``, ``photo.jpg#xywh=10,20,64,48`` (left, top,
width and height in pixels, as in media fragments), ``vectors.safetensors#row=7``.
"""

import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels of the file."""
_NUMBER = r"([-+\d.e]+)"
_BOX = re.compile(rf"(.*)#xywh={_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER}", re.DOTALL)
_ROW = re.compile(r"(.*)#row=(\d+)", re.DOTALL)


@dataclass(frozen=True)
class ImageRef:
    """An image file, and the box to crop out of it (None: the whole image)."""

    path: str
    box: Box | None = None

    @classmethod
    def of(cls, path: str, box: Sequence[float] | npt.NDArray[np.float64] | None = None) -> "ImageRef":
        """A box of four numbers, or None or NaN for the whole image."""
        if box is None or any(math.isnan(side) for side in box):
            return cls(path)
        left, top, right, bottom = map(float, box)
        return cls(path, (left, top, right, bottom))

    def __str__(self) -> str:
        if self.box is None:
            return self.path
        left, top, right, bottom = self.box
        return f"{self.path}#xywh={left:.10g},{top:.10g},{right - left:.10g},{bottom - top:.10g}"


@dataclass(frozen=True)
class RowRef:
    """A row of an embeddings file that gives its rows no names."""

    file: str
    row: int

    def __str__(self) -> str:
        return f"{self.file}#row={self.row}"


def parse_ref(text: str, root: str | None = None) -> ImageRef | RowRef:
    """The inverse of ``str``; relative paths lie below ``root``. A malformed fragment is part of the path.

    >>> parse_ref("cat.jpg#xywh=10,20,64,48", "/data")
    ImageRef(path='/data/cat.jpg', box=(10.0, 20.0, 74.0, 68.0))
    >>> parse_ref("vectors.npz#row=7")
    RowRef(file='vectors.npz', row=7)
    """
    if "#" in text:  # rare
        if match := _ROW.fullmatch(text):
            return RowRef(_below(root, match[1]), int(match[2]))
        if match := _BOX.fullmatch(text):
            try:
                left, top, width, height = map(float, match.groups()[1:])
            except ValueError:
                return ImageRef(_below(root, text))
            return ImageRef(_below(root, match[1]), (left, top, left + width, top + height))
    return ImageRef(_below(root, text))


def image_path(text: str, root: str | None = None) -> str | None:
    """The file of the image that a reference names; None for a row of vectors."""
    ref = parse_ref(text, root)
    return ref.path if isinstance(ref, ImageRef) else None


def box_array(refs: Iterable[ImageRef]) -> npt.NDArray[np.float64] | None:
    """The boxes of many images (N, 4), NaN where there is none; None if no image has one."""
    boxes = [ref.box for ref in refs]
    if not any(boxes):
        return None
    return np.array([(np.nan,) * 4 if box is None else box for box in boxes], dtype=np.float64)


def _below(root: str | None, path: str) -> str:
    return os.path.join(root, path) if root else path
