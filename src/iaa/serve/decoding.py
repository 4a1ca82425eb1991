"""Decoding uploads: formats, limits, and the loop of a worker process that decodes nothing else."""

import ctypes
import gc
import io
import json
import os
import signal
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from iaa.data.image_dataset import transform
from iaa.data.image_io import MAX_PIXELS, UnreadableImage, read
from iaa.data.transforms import Transform, as_tensor
from iaa.serve.api_errors import ApiError

transform(False)  # imports torchvision once, in the process that all workers are forked from
Image.init()
FORMATS: list[str] = [
    name for name in ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF") if name in Image.OPEN
]
"""Formats that are accepted; Pillow's other decoders start programs or are seldom reviewed."""
SMALL_PIXELS = 4_000_000
"""Images up to this cost are decoded at once; larger ones must be admitted first."""

START_OF_SCAN, USUAL_SCANS = b"\xff\xda", 32
"""A marker in JPEG files, and how many of them are usual: about ten, and those of a few previews."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""


class LargeImage(Exception):
    """An upload that costs too much to be decoded in the lane for small ones."""

    def __init__(self, cost: int) -> None:
        super().__init__(cost)
        self.cost = cost


def prepare_upload(
    content: bytes, step: Transform, *, pixels: int, at_once: int | None = None
) -> npt.NDArray[np.uint8]:
    """Decode an image file for the network, (3, height, width); limits are checked against its header.

    An image that costs more than ``at_once`` pixels raises ``LargeImage`` before it is decoded.
    """
    if not content:
        raise ApiError(422, "the file is empty")
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as header:
            cost = decoding_cost(header, step, scans=content.count(START_OF_SCAN))
            _check_size(*header.size, cost, pixels, step)
        if at_once is not None and cost > at_once:
            raise LargeImage(cost)
        image = read(io.BytesIO(content), at_least=step.at_least, formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ApiError(413, f"the image has too many pixels: at most {pixels:,} are accepted") from error
    except (ApiError, LargeImage):
        raise
    except UnreadableImage as error:
        raise ApiError(422, f"the image cannot be read: {error.reason}") from error
    except Exception as error:  # decoders fail in many ways on bytes made to confuse them
        formats = ", ".join(name for name in FORMATS if name != "MPO")
        raise ApiError(422, f"the file is not a readable image; supported formats: {formats}") from error
    prepared = step.vary(step.prepare(as_tensor(np.array(image))), 0)
    return np.ascontiguousarray(prepared.numpy())


def decoding_cost(image: Image.Image, step: Transform, *, scans: int = 1) -> int:
    """Pixels to decode, without decoding any. A JPEG is reduced on the way, unless it is progressive.

    Every scan of a JPEG visits all pixels and may take only a few bytes, so unusually many count.
    """
    width, height = image.size
    if image.format in ("JPEG", "MPO") and scans > USUAL_SCANS:
        return width * height * scans // USUAL_SCANS
    if image.format == "JPEG" and not image.info.get("progressive"):
        scales = [scale for scale in (4, 2) if min(width, height) >= scale * step.at_least]
        return width * height // max(scales, default=1)
    return width * height


def _check_size(width: int, height: int, cost: int, pixels: int, step: Transform) -> None:
    if cost > pixels or width * height > MAX_PIXELS:
        raise ApiError(413, f"{width:,} x {height:,} pixels are too many: at most {pixels:,} are accepted")
    stretched = (step.at_least // 2) ** 2 * max(width, height) / max(min(width, height), 1)
    if stretched > pixels:  # the short side is resized to a fixed length, and the long one grows with it
        raise ApiError(413, f"an image of {width:,} x {height:,} pixels is too long and narrow")


def _give_memory_back() -> None:
    """Make glibc return every block of a megabyte or more to the system as soon as it is freed."""
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        for parameter in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            mallopt(parameter, 2**20)


def decode_forever(connection: Any, preprocessing: dict[str, Any], pixels: int, niceness: int) -> None:
    """Main function of a worker: receives image files, replies with JSON and, if it worked, the pixels.

    Nothing is unpickled on either side, so that a decoder that has been taken over cannot run code in the
    server.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then ends this process
    if hasattr(os, "nice"):
        os.nice(niceness)
    with open(os.devnull, "w") as nowhere:  # libraries print warnings about broken files
        os.dup2(nowhere.fileno(), 2)
    _give_memory_back()
    torch.set_num_threads(1)
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    step = transform(False, **preprocessing)
    gc.freeze()  # what was imported is not garbage: no search for any in it while an image waits
    connection.send_bytes(b"{}")  # ready
    while True:
        try:
            at_once, content = int.from_bytes(connection.recv_bytes(8), "little"), connection.recv_bytes()
        except EOFError:
            return
        array = None
        try:
            array = prepare_upload(content, step, pixels=pixels, at_once=at_once or None)
            reply: dict[str, Any] = {"shape": array.shape}
        except LargeImage as large:
            reply = {"cost": large.cost}
        except ApiError as error:
            reply = {"status": error.status_code, "message": error.detail}
        except MemoryError:
            reply = {"status": 413, "message": "the image needs too much memory"}
        connection.send_bytes(json.dumps(reply).encode())
        if array is not None:
            connection.send_bytes(array.tobytes())
        del content, array
