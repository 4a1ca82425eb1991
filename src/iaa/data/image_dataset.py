"""From files to batches: a dataset of images with a shared cache, and its loader."""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from iaa.data.image_cache import ImageCache, free_memory
from iaa.data.image_io import UnreadableImage, read, unreadable
from iaa.data.transforms import Transform, as_tensor, drawn, transform
from iaa.errors import unknown

__all__ = ["Batch", "ImageDataset", "ImageLoader", "Transform", "loader", "transform"]

_log = logging.getLogger("iaa")


class Batch(NamedTuple):
    """What a loader yields; ``rows`` says which images these are."""

    images: Tensor
    labels: Tensor
    rows: Tensor


class ImageDataset(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """A map-style dataset of (image, label), checked before use, with decoded images cached where they fit.

    Unreadable images raise at once, or with ``on_bad_image="skip"`` are left out and listed in ``bad``:
    take ``paths`` and ``labels`` from here afterwards. ``transform`` may be any callable on PIL images.
    """

    def __init__(
        self,
        paths: Sequence[str] | npt.NDArray[Any],
        labels: Sequence[int] | npt.NDArray[np.int64] | Tensor,
        transform: Callable[[Any], Tensor],
        *,
        cache: str | bool = "auto",
        on_bad_image: str = "raise",
        background: str = "white",
        boxes: npt.NDArray[np.float64] | None = None,
        check: bool = True,
    ) -> None:
        if on_bad_image not in ("raise", "skip"):
            raise unknown("on_bad_image", on_bad_image, ("raise", "skip"))
        if len(paths) != len(labels):
            raise ValueError(f"{len(paths)} paths but {len(labels)} labels")
        self.paths = [str(path) for path in paths]
        self.labels = torch.as_tensor(labels, dtype=torch.int64)
        self.transform, self.background, self.boxes = transform, background, boxes
        self.on_bad_image = on_bad_image
        self.bad = unreadable(self.paths) if check else []
        if self.bad:
            self._drop_bad()
        self.cache, self.note = _make_cache(self, cache)
        _log.info(self.note)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        varied, step = self.varied(row), self.transform
        image = step.finish(varied) if isinstance(step, Transform) else varied
        return image, int(self.labels[row])

    def varied(self, row: int, number: int | None = None) -> Tensor:
        """The image after everything but ``finish``, which is quicker for a whole batch.

        ``number`` decides crop and flip; without it they are drawn.
        """
        pixels = self.cache.get(row) if self.cache is not None else None
        if pixels is None:
            pixels = self.prepared(row)
            if self.cache is not None:
                self.cache.put(row, pixels)
        if isinstance(self.transform, Transform):
            return self.transform.vary(as_tensor(pixels), drawn() if number is None else number)
        from PIL import Image

        return self.transform(Image.fromarray(pixels))

    def prepared(self, row: int) -> npt.NDArray[np.uint8]:
        """The image (height, width, 3) as the cache keeps it."""
        step = self.transform if isinstance(self.transform, Transform) else None
        box = None if self.boxes is None else self.boxes[row]
        at_least = step.at_least if step else None
        image = read(self.paths[row], background=self.background, at_least=at_least, box=box)
        pixels = np.array(image)
        return step.prepare(as_tensor(pixels)).permute(1, 2, 0).numpy() if step else pixels

    def _drop_bad(self) -> None:
        if self.on_bad_image == "raise":
            more = (
                f" (and {len(self.bad) - 1} more: `iaa data check` lists them)" if len(self.bad) > 1 else ""
            )
            raise UnreadableImage(self.bad[0].path, self.bad[0].reason + more)
        names = {error.path for error in self.bad}
        kept = [row for row, path in enumerate(self.paths) if path not in names]
        if not kept:
            raise UnreadableImage(self.bad[0].path, f"{self.bad[0].reason}, and no other image is readable")
        _log.warning("%d unreadable images are left out, the first: %s", len(self.bad), self.bad[0])
        self.paths = [self.paths[row] for row in kept]
        self.labels = self.labels[kept]
        self.boxes = None if self.boxes is None else self.boxes[kept]


class ImageLoader:
    """Batches from worker processes; an image that turns out unreadable stops the run or is left out."""

    def __init__(self, images: ImageDataset, inner: "DataLoader[Any]") -> None:
        self.images, self.inner = images, inner

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[Batch]:
        for batch, bad in self.inner:
            if bad and self.images.on_bad_image == "raise":
                raise bad[0]
            known = {error.path for error in self.images.bad}
            self.images.bad += [error for error in bad if error.path not in known]
            if batch is not None:
                yield batch


def loader(
    images: ImageDataset,
    *,
    batches: Iterable[Sequence[int] | Sequence[tuple[int, int]]] | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    seed: int = 0,
    pin_memory: bool | None = None,
) -> ImageLoader:
    """Batches in order, or as a batch sampler (``batches``) says; ``workers`` default to the free cores.

    The sampler names rows, or pairs of a row and the number that decides its crop (``Numbered``).
    """
    number = _default_workers(images) if workers is None else workers
    several: dict[str, Any] = {}
    if number:
        several = {"persistent_workers": True, "prefetch_factor": 2}
        if sys.platform.startswith("linux"):
            several["multiprocessing_context"] = "fork"  # the cache is shared by inheritance
    how = {"batch_sampler": batches} if batches is not None else {"batch_size": batch_size}
    inner: DataLoader[Any] = DataLoader(
        _Rows(images),
        **how,
        num_workers=number,
        collate_fn=_Collate(images),
        generator=torch.Generator().manual_seed(seed),
        pin_memory=torch.cuda.is_available() if pin_memory is None else pin_memory,
        **several,
    )
    return ImageLoader(images, inner)


@dataclass(frozen=True)
class _Rows(torch.utils.data.Dataset[Any]):
    """Images before ``finish``; a failure travels as a value, since a worker's traceback helps nobody."""

    images: ImageDataset

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, wanted: int | tuple[int, int]) -> tuple[int, Tensor | UnreadableImage]:
        row, number = wanted if isinstance(wanted, tuple) else (wanted, None)
        try:
            return row, self.images.varied(row, number)
        except UnreadableImage as error:
            return row, error


@dataclass(frozen=True)
class _Collate:
    images: ImageDataset

    def __call__(
        self, samples: list[tuple[int, Tensor | UnreadableImage]]
    ) -> tuple[Batch | None, list[UnreadableImage]]:
        bad = [image for _, image in samples if isinstance(image, UnreadableImage)]
        good = [(row, image) for row, image in samples if isinstance(image, Tensor)]
        if not good:
            return None, bad
        images = torch.stack([image for _, image in good])
        if isinstance(self.images.transform, Transform):
            images = self.images.transform.finish(images)
        rows = torch.tensor([row for row, _ in good])
        return Batch(images, self.images.labels[rows], rows), bad


def _make_cache(images: ImageDataset, wanted: str | bool) -> tuple[ImageCache | None, str]:
    if wanted not in ("auto", True, False):
        raise unknown("cache", wanted, ("auto", "True", "False"))
    number = len(images)
    if wanted is False or not number:
        return None, f"image cache: off ({number:,} images)"
    sizes = []
    for row in np.linspace(0, number - 1, min(number, 32)).astype(int).tolist():
        try:
            sizes.append(images.prepared(row).size)
        except UnreadableImage:  # it is reported when its turn comes
            continue
    needed = int(np.mean(sizes or [0]) * number)
    budget = free_memory() // 2
    text = f"{number:,} images need {needed / 2**30:.2f} GiB, {budget / 2**30:.2f} GiB may be used"
    if wanted == "auto" and needed > budget:
        return None, f"image cache: off, {text}"
    return ImageCache(number, int(needed * 1.1) + 2**20), f"image cache: on, {text}"


def _default_workers(images: ImageDataset) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if len(images) < 512 else min(max(cores - 1, 1), 8)
