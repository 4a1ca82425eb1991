"""The paper's transforms from plain keywords: resize, crop, flip, and the backbone's own normalisation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from iaa.errors import unknown
from iaa.vision import torchvision

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Transform:
    """Three steps: ``prepare`` is the same every time (so it can be cached), ``vary`` is drawn, ``finish``
    turns bytes into normalised floats and takes whole batches."""

    prepare: Callable[[Tensor], Tensor]
    vary: Callable[[Tensor], Tensor]
    finish: Callable[[Tensor], Tensor]
    at_least: int
    """Below this many pixels a side, decoding a JPEG at reduced scale would show."""

    def __call__(self, picture: Any) -> Tensor:
        """All three steps for one PIL picture."""
        return self.finish(self.vary(self.prepare(as_tensor(np.array(picture)))))


def transform(
    train: bool,
    *,
    size: int = 224,
    resize: int = 256,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    interpolation: str = "bilinear",
    aspect: str = "squeeze",
) -> Transform:
    """Resize, then a random crop and flip for training or the single centre crop for test.

    ``aspect="squeeze"`` resizes to ``resize`` x ``resize`` as the paper says, ``"keep"`` brings the short
    side there. ``mean`` and ``std`` are for pixels in [0, 1].
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
    finish = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std, inplace=True)])
    if train:
        return Transform(
            scale, v2.Compose([v2.RandomCrop(size), v2.RandomHorizontalFlip()]), finish, 2 * resize
        )
    return Transform(v2.Compose([scale, v2.CenterCrop(size)]), _same, finish, 2 * resize)


def as_tensor(pixels: npt.NDArray[np.uint8]) -> Tensor:
    """(height, width, 3) as (3, height, width), without a copy."""
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _same(picture: Tensor) -> Tensor:
    return picture
