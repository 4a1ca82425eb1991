"""The paper's transforms from plain keywords: resize, crop, flip, and the backbone's own normalisation."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from iaa.errors import unknown
from iaa.torchvision_compat import torchvision

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NARROW = 16
"""Of an image longer than this many times its short side only the middle is kept, where aspect is."""


@dataclass(frozen=True)
class Transform:
    """Three steps: ``prepare`` is the same every time (so it can be cached), ``vary`` is a function of the
    image and a drawn number, and ``finish`` turns bytes into floats, normalised (for values of 0 to 255),
    a whole batch at once.
    """

    prepare: Callable[[Tensor], Tensor]
    vary: Callable[[Tensor, int], Tensor]
    normalise: Callable[[Tensor], Tensor]
    at_least: int
    """A JPEG may be decoded at reduced scale as long as both its sides keep this many pixels."""

    def __call__(self, image: Any) -> Tensor:
        """All three steps for one PIL image."""
        return self.finish(self.vary(self.prepare(as_tensor(np.array(image))), drawn()))

    def finish(self, images: Tensor) -> Tensor:
        """Bytes (an image or a batch) as normalised floats."""
        return self.normalise(_floats(images.shape).copy_(images))


def transform(
    train: bool,
    *,
    size: int = 224,
    resize: int = 256,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    interpolation: str = "bilinear",
    aspect: str = "squeeze",
    crop: str = "shift",
) -> Transform:
    """Resize, then a random crop and flip for training or the single centre crop for test.

    ``aspect="squeeze"`` resizes to ``resize`` x ``resize`` as the paper says, ``"keep"`` brings the short
    side there. ``mean`` and ``std`` are for pixels in [0, 1]. Training crops ``"shift"`` (the paper) or
    ``"zoom"``: 20 to 100 % of the area, at 3:4 to 4:3, resized to ``size``.
    """
    torchvision()
    from torchvision.transforms import InterpolationMode, v2

    if aspect not in ("squeeze", "keep"):
        raise unknown("aspect", aspect, ("squeeze", "keep"))
    if interpolation not in ("bilinear", "bicubic", "nearest"):
        raise unknown("interpolation", interpolation, ("bilinear", "bicubic", "nearest"))
    if not 0 < size <= resize:
        raise ValueError(f"resize must be at least the crop's size, got resize={resize} and size={size}")
    to = (resize, resize) if aspect == "squeeze" else resize
    scale = v2.Resize(to, interpolation=InterpolationMode(interpolation), antialias=True)
    if aspect == "keep":
        scale = v2.Compose([_middle, scale])  # a line of pixels would become gigabytes
    normalise = v2.Normalize([255 * value for value in mean], [255 * value for value in std], inplace=True)
    if crop not in CROPS:
        raise unknown("crop", crop, CROPS)
    if train:
        return Transform(scale, partial(CROPS[crop], size), normalise, 2 * resize)
    return Transform(v2.Compose([scale, v2.CenterCrop(size)]), _same, normalise, 2 * resize)


def _middle(image: Tensor) -> Tensor:
    """The image, or its middle if it is very long and narrow."""
    height, width = image.shape[1:]
    most = NARROW * min(height, width)
    top, left = max(0, height - most) // 2, max(0, width - most) // 2
    return image[:, top : top + most, left : left + most]


def as_tensor(pixels: npt.NDArray[np.uint8]) -> Tensor:
    """(height, width, 3) as (3, height, width), without a copy."""
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _floats(shape: torch.Size) -> Tensor:
    """Room for a batch; a worker takes it in shared memory, which saves a copy on the way to the trainer."""
    if torch.utils.data.get_worker_info() is None:
        return torch.empty(shape)
    storage: Any = torch.UntypedStorage
    return torch.empty(0).set_(storage._new_shared(4 * shape.numel())).view(shape)


def drawn() -> int:
    """A number for ``vary`` from torch's own generator, for whoever has no plan to take it from."""
    return int(torch.randint(2**62, ()))


def _crop_and_flip(size: int, image: Tensor, number: int) -> Tensor:
    """A crop at one of all places and a flip or none, both read off the number."""
    number, flip = divmod(number, 2)
    number, left = divmod(number, image.shape[2] - size + 1)
    top = number % (image.shape[1] - size + 1)
    crop = image[:, top : top + size, left : left + size]
    return crop.flip(2) if flip else crop


def _zoom_and_flip(size: int, image: Tensor, number: int) -> Tensor:
    """A crop of random area and shape, resized, and a flip or none, all read off the number."""
    number, flip = divmod(number, 2)
    generator = torch.Generator().manual_seed(number)
    height, width = image.shape[1:]
    area, shape, down, right = torch.rand(4, generator=generator).tolist()
    ratio = math.exp((2 * shape - 1) * math.log(4 / 3))
    pixels = height * width * (0.2 + 0.8 * area)
    rows = max(1, min(height, round(math.sqrt(pixels / ratio))))
    columns = max(1, min(width, round(math.sqrt(pixels * ratio))))
    top, left = int(down * (height - rows + 1)), int(right * (width - columns + 1))
    cut = image[:, top : top + rows, left : left + columns]
    resized = torch.nn.functional.interpolate(
        cut[None].float(), (size, size), mode="bilinear", antialias=True, align_corners=False
    )
    crop = resized[0].round_().clamp_(0, 255).to(torch.uint8)
    return crop.flip(2) if flip else crop


CROPS: dict[str, Callable[[int, Tensor, int], Tensor]] = {"shift": _crop_and_flip, "zoom": _zoom_and_flip}
"""Random crops for training by name."""


def _same(image: Tensor, number: int) -> Tensor:
    return image
