"""Images of the gallery as they are sent: reduced, encoded anew, and read again when their file changes."""

import functools
import hashlib
import io
import os

from iaa.data.image_io import UnreadableImage, read
from iaa.data.image_ref import ImageRef
from iaa.gallery.gallery import Gallery
from iaa.serve.api_errors import ApiError

SIDES = (160, 320, 640, 1280)
"""Sizes in which images of the gallery are sent."""
CACHED = 1024
"""Reduced images that are kept in memory."""


class GalleryImages:
    """Reduced images by row; the newest ``CACHED`` are kept."""

    def __init__(self, gallery: Gallery) -> None:
        self._gallery = gallery
        self._cached = functools.lru_cache(CACHED)(self._read)

    def version(self, row: int) -> str | None:
        """Changes when the file of an image changes; None if the file is missing."""
        reference = self._gallery.image(row)
        stamp = None if reference is None else _stamp(reference.path)
        return None if stamp is None else hashlib.sha256(repr(stamp).encode()).hexdigest()[:8]

    def get(self, row: int, side: int) -> tuple[bytes, str]:
        """An image no larger than ``side``, in one of a few sizes, and its media type."""
        side = max((size for size in SIDES if size <= side), default=SIDES[0])
        reference = self._gallery.image(row)
        stamp = None if reference is None else _stamp(reference.path)
        if stamp is None:
            raise ApiError(404, f"the file of image {row} is missing")
        try:
            return self._cached(row, side, stamp)
        except UnreadableImage as error:
            raise ApiError(404, f"image {row} of the gallery cannot be read: {error.reason}") from error

    def _read(self, row: int, side: int, stamp: tuple[int, int]) -> tuple[bytes, str]:
        reference = self._gallery.image(row)
        if reference is None:
            raise ApiError(404, f"the file of image {row} is missing")
        return reduce_image(reference, side)


def reduce_image(reference: ImageRef, side: int) -> tuple[bytes, str]:
    """An image of the gallery at most ``side`` pixels long, and its media type.

    Only pixels are sent: nothing else that the file may hold (positions, thumbnails, scripts).
    """
    image = read(reference.path, at_least=side, box=reference.box)
    image.thumbnail((side, side))
    is_small = max(image.size) <= SIDES[0]  # icons: not worth the loss
    out = io.BytesIO()
    if is_small:
        image.save(out, "PNG")
    else:
        image.save(out, "JPEG", quality=85)
    return out.getvalue(), "image/png" if is_small else "image/jpeg"


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
