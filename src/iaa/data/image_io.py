"""Reading one image so that it comes out right, whatever its file holds."""

import functools
import importlib.util
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from iaa.errors import need
from iaa.terminal import printable

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 89_478_485  # a quarter of a gigabyte as RGB: Pillow's own bound for a decompression bomb
_ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82"}


_TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""What makes an image upright, by its EXIF orientation."""


class UnreadableImage(ValueError):
    """An image that is missing, broken, no image at all or too large."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"cannot read image {printable(self.path)}: {self.reason}"


def read(
    path: str | BytesIO,
    *,
    background: str = "white",
    at_least: int | None = None,
    box: Sequence[float] | npt.NDArray[np.float64] | None = None,
    formats: Sequence[str] | None = None,
) -> "Image":
    """An upright 8-bit RGB image; what is transparent shows the background.

    ``at_least``: a JPEG may be decoded at 1/2, 1/4 or 1/8 as long as both sides keep that many pixels.
    ``box``: left, top, right, bottom to cut out, in pixels of the file. The file may be open already.
    ``formats``: names of the only decoders of Pillow that may look at it.
    """
    pil = _pillow()
    name = path if isinstance(path, str) else "as given"
    try:
        with pil.open(path, formats=formats) as image:
            _refuse_bomb(name, image)
            if at_least is not None and box is None and image.format == "JPEG":
                image.draft(None, (at_least, at_least))
            image.load()
            if box is not None and not np.isnan(box).any():
                image = _cut(name, image, *(round(side) for side in box))
            return _rgb(_upright(image), background)
    except UnreadableImage:
        raise
    except pil.DecompressionBombError as error:
        raise UnreadableImage(name, "too large") from error
    except Exception as error:  # decoders fail in many ways on bytes that make no sense
        raise UnreadableImage(name, _reason(error)) from error


@functools.cache
def _pillow() -> Any:
    """Pillow, which reads HEIC as well where pillow-heif is installed."""
    pil = need("PIL.Image", extra="images")
    if importlib.util.find_spec("pillow_heif") is not None:
        need("pillow_heif", extra="images").register_heif_opener()
    return pil


def as_rgb(image: "Image", *, background: str = "white") -> "Image":
    """An open image as ``read`` would give it: upright, 8-bit RGB."""
    try:
        _refuse_bomb("as given", image)
        return _rgb(_upright(image), background)
    except UnreadableImage:
        raise
    except Exception as error:
        raise UnreadableImage("as given", _reason(error)) from error


def glance(path: str) -> UnreadableImage | None:
    """What is wrong with an image, from its first and last bytes; decoded only if the end looks cut off."""
    pil = _pillow()
    try:
        with open(path, "rb") as file:
            image = pil.open(file)
            _refuse_bomb(path, image)
            end = _ENDS.get(image.format or "")
            file.seek(-min(64, file.seek(0, 2)), 2)
            if end is not None and end not in file.read():
                read(path)
        return None
    except UnreadableImage as error:
        return error
    except pil.DecompressionBombError:
        return UnreadableImage(path, "too large")
    except Exception as error:
        return UnreadableImage(path, _reason(error))


def unreadable(paths: Iterable[str], *, thorough: bool = False, threads: int = 4) -> list[UnreadableImage]:
    """Every image that is missing or cannot be read; ``thorough`` decodes each one whole."""
    from rich.console import Console
    from rich.progress import track

    names = list(dict.fromkeys(paths))
    look = _decode if thorough else glance
    groups = [names[start : start + 64] for start in range(0, len(names), 64)]
    console = Console(stderr=True)
    with ThreadPoolExecutor(threads) as pool:
        errors = pool.map(lambda group: [error for name in group if (error := look(name))], groups)
        shown = track(errors, "reading images", len(groups), console=console, disable=not console.is_terminal)
        return [error for group in shown for error in group]


def _decode(path: str) -> UnreadableImage | None:
    try:
        read(path)
    except UnreadableImage as error:
        return error
    return None


def _refuse_bomb(path: str, image: "Image") -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise UnreadableImage(path, f"{width} x {height} pixels are too many (at most {MAX_PIXELS:,})")


def _upright(image: "Image") -> "Image":
    """Turned as the EXIF tag says; most images have none, and pay nothing."""
    turn = _TURNS.get(image.getexif().get(0x0112, 1))
    if turn is None:
        return image
    pil = need("PIL.Image", extra="images")
    turned: Image = image.transpose(pil.Transpose[turn])
    for tag in ("exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif"):  # else it would be turned again
        turned.info.pop(tag, None)
    return turned


def _cut(name: str, image: "Image", left: int, top: int, right: int, bottom: int) -> "Image":
    width, height = image.size
    if not (max(left, 0) < min(right, width) and max(top, 0) < min(bottom, height)):
        box = f"{left}, {top}, {right}, {bottom}"
        raise UnreadableImage(name, f"its box {box} holds nothing of an image of {width} x {height}")
    return image.crop((left, top, right, bottom))


def _rgb(image: "Image", background: str) -> "Image":
    pil = need("PIL.Image", extra="images")
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I") or image.mode == "F":
        return _eight_bit(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        over: Image = image.convert("RGBA")
        under: Image = pil.new("RGBA", over.size, background)
        return pil.alpha_composite(under, over).convert("RGB")  # type: ignore[no-any-return]
    return image.convert("RGB")


def _eight_bit(image: "Image") -> "Image":
    """16-bit grey brought to 8 bits; Pillow's own conversion would clip it to white."""
    pil = need("PIL.Image", extra="images")
    values = np.asarray(image, dtype=np.float64)
    if image.mode == "F" or values.max(initial=0) > 65535 or values.min(initial=0) < 0:
        raise UnreadableImage(
            getattr(image, "filename", "?"), f"mode {image.mode} beyond 16 bits has no scale"
        )
    grey = (values / 257).round().astype(np.uint8)
    return pil.fromarray(grey).convert("RGB")  # type: ignore[no-any-return]


def _reason(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "it is a folder: give the images in it"
    if type(error).__name__ == "UnidentifiedImageError":
        return "not an image, or of an unknown format"
    return " ".join(str(error).split()) or type(error).__name__
