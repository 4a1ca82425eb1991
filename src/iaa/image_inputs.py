"""Images as users pass them (paths, bytes, PIL images, arrays), prepared for a network."""

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from iaa.data.image_dataset import Batch, Transform
from iaa.data.image_io import UnreadableImage, as_rgb, read
from iaa.data.transforms import as_tensor

IMAGES = "paths, PIL images, encoded images (bytes) or uint8 arrays (height, width, 3)"


def batches_of(
    images: Sequence[Any], step: Transform, batch_size: int, unreadable: dict[int, UnreadableImage]
) -> Iterator[Batch]:
    """Batches of the readable images; the others are added to ``unreadable`` by their position."""
    for start in range(0, len(images), batch_size):
        tensors: list[Tensor] = []
        rows: list[int] = []
        for row in range(start, min(start + batch_size, len(images))):
            try:
                tensors.append(_prepare(images[row], step))
                rows.append(row)
            except UnreadableImage as error:
                unreadable[row] = error
        if rows:
            positions = torch.tensor(rows)
            yield Batch(step.finish(torch.stack(tensors)), torch.zeros_like(positions), positions)


def _prepare(source: Any, step: Transform) -> Tensor:
    """An image of any kind as a uint8 tensor."""
    if isinstance(source, str | Path):
        image = read(str(source), at_least=step.at_least)
    elif isinstance(source, bytes):
        image = read(io.BytesIO(source), at_least=step.at_least)
    elif hasattr(source, "getexif"):
        image = as_rgb(source)
    else:
        pixels = np.asarray(source)
        if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,), (4,)):
            raise ValueError(
                f"an array must be an image of uint8 (height, width, 3), got {pixels.dtype} {pixels.shape}"
            )
        if not pixels.size:
            raise ValueError(f"an array must be an image of one pixel or more, got {pixels.shape}")
        from PIL import Image

        image = as_rgb(Image.fromarray(pixels))
    return step.vary(step.prepare(as_tensor(np.array(image))), 0)


def as_images(inputs: Any) -> list[Any]:
    """A list of images; a single image becomes a list, an array of four dimensions holds several."""
    single = isinstance(inputs, str | Path | bytes) or hasattr(inputs, "getexif")
    if not single and not isinstance(inputs, Iterable):
        raise TypeError(f"images must be {IMAGES}, got {type(inputs).__name__}")
    return [inputs] if single or getattr(inputs, "ndim", 4) < 4 else list(inputs)


def as_vectors(inputs: Any) -> Tensor | None:
    """Floating numbers, as one array or as a list of rows; None for anything else."""
    if isinstance(inputs, list | tuple) and inputs and getattr(inputs[0], "ndim", 0) == 1:
        return torch.stack([torch.as_tensor(row) for row in inputs])
    if isinstance(inputs, np.ndarray) and np.issubdtype(inputs.dtype, np.floating):
        return torch.as_tensor(inputs)
    return inputs if isinstance(inputs, Tensor) and inputs.is_floating_point() else None
