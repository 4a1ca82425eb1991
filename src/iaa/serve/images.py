"""Images that come in, held to their limits; images of the gallery that go out."""

import io
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from torch import Tensor

from iaa.data.image_io import UnreadableImage, read
from iaa.data.transforms import Transform, as_tensor
from iaa.serve.middleware import Refused

if TYPE_CHECKING:
    from iaa.data.image_ref import ImageRef

Image.init()
FORMATS: list[str] = [
    name for name in ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF") if name in Image.OPEN
]
"""What is taken from strangers; other decoders of Pillow start programs or are seldom looked at."""
SIDES = (160, 320, 640, 1280)
"""Sizes that images of the gallery are sent in."""


def prepare_upload(content: bytes, step: Transform, *, pixels: int) -> Tensor:
    """The bytes of an image file, ready for the network; refused from its header if it is too large."""
    if not content:
        raise Refused(422, "the file is empty")
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as header:
            _refuse_size(*header.size, pixels, step)
        image = read(io.BytesIO(content), at_least=step.at_least, formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise Refused(413, f"the image has too many pixels: at most {pixels:,} are taken") from error
    except Refused:
        raise
    except UnreadableImage as error:
        raise Refused(422, f"the image cannot be read: {error.reason}") from error
    except Exception as error:  # decoders fail in many ways on bytes made to confuse them
        known = ", ".join(name for name in FORMATS if name != "MPO")
        raise Refused(422, f"the file is no image that can be read; these can: {known}") from error
    return step.vary(step.prepare(as_tensor(np.array(image))), 0)


def _refuse_size(width: int, height: int, pixels: int, step: Transform) -> None:
    if width * height > pixels:
        raise Refused(413, f"{width:,} x {height:,} pixels are too many: at most {pixels:,} are taken")
    stretched = (step.at_least // 2) ** 2 * max(width, height) / max(min(width, height), 1)
    if stretched > pixels:  # the short side is brought to a fixed length, and the long one grows with it
        raise Refused(413, f"an image of {width:,} x {height:,} pixels is too long and narrow")


def shrink(reference: "ImageRef", side: int) -> tuple[bytes, str]:
    """An image of the gallery at most ``side`` pixels long, encoded anew, and its media type.

    What is sent is pixels alone: nothing else that a file may hold (positions, thumbnails, scripts) leaves.
    """
    image = read(reference.path, at_least=side, box=reference.box)
    image.thumbnail((side, side))
    small = max(image.size) <= SIDES[0]  # drawings and icons: not worth the loss
    out = io.BytesIO()
    if small:
        image.save(out, "PNG")
    else:
        image.save(out, "JPEG", quality=85)
    return out.getvalue(), "image/png" if small else "image/jpeg"
