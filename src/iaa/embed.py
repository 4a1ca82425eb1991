"""Run images through a network in evaluation mode: embeddings of a whole dataset."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from iaa.data.image_dataset import ImageDataset, loader
from iaa.errors import unknown
from iaa.retrieval.shards import Shards

PRECISIONS: dict[str, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
"""The type that autocast computes in, by the name used in every command; None is full precision."""
WAIT_SECONDS = 0.2
"""Between two looks at what other processes have finished."""


def embed_batches(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor, Tensor]],
    *,
    device: torch.device | str = "cpu",
    precision: torch.dtype | None = None,
    on_batch: Callable[[int], None] = lambda images: None,
) -> tuple[Float[Tensor, "N D"], Int[Tensor, "N"], Int[Tensor, "N"]]:
    """Embeddings (float32, on the CPU), labels and row numbers of all batches of (images, labels, rows).

    The model is used in evaluation mode and its mode is restored. ``precision`` is that of autocast;
    ``on_batch`` is called with the number of images of each batch.
    """
    parts = list(_embedded(model, batches, device=device, precision=precision, on_batch=on_batch))
    if not parts:
        raise ValueError("there are no images to embed")
    z, labels, rows = (torch.cat(column) for column in zip(*parts, strict=True))
    return z, labels, rows


def embed_images(
    model: nn.Module,
    images: ImageDataset,
    parts: Shards,
    *,
    device: torch.device | str = "cpu",
    precision: torch.dtype | None = None,
    workers: int | None = None,
    on_batch: Callable[[int], None] = lambda images: None,
) -> None:
    """Embed what ``parts`` does not hold yet, together with any other processes that do the same.

    A shard is saved when it is complete, or as far as it has come when stopped. Batches begin at multiples of
    the batch size and are computed with the plan's threads, however often the work was stopped and whichever
    process does it, so the embeddings are the same to the bit. ``on_batch`` also reports the images of other
    processes, a shard at a time.
    """
    threads = torch.get_num_threads()
    by_others = parts.done
    own = 0
    try:
        if torch.device(device).type == "cpu":
            torch.set_num_threads(parts.threads)
        while not parts.finished:
            if (news := parts.done - own - by_others) > 0:
                on_batch(news)
                by_others += news
            claimed = parts.claim()
            if claimed is None:  # other processes work on all that is left; if one ends, its shard is free
                time.sleep(WAIT_SECONDS)
                continue
            work = _Claims(parts, images, claimed)
            batches = _embedded(
                model,
                loader(images, batches=work.batches(), workers=workers),
                device=device,
                precision=precision,
                on_batch=on_batch,
            )
            own += work.save_all(batches)
    finally:
        torch.set_num_threads(threads)


class _Claims:
    """The ranges that this process has claimed and not yet saved, in the order of their batches."""

    def __init__(self, parts: Shards, images: ImageDataset, first: tuple[int, int]) -> None:
        self.parts, self.images = parts, images
        self.first, self.waiting = first, deque([first])
        self.pending: list[tuple[Tensor, Tensor]] = []
        self.saved = 0

    def batches(self) -> Iterator[range]:
        """Rows of batches, range after range; a range is claimed when the loader asks for it."""
        claimed: tuple[int, int] | None = self.first
        while claimed is not None:
            start, stop = claimed
            for at in range(start, stop, self.parts.batch_size):
                yield range(at, min(at + self.parts.batch_size, stop))
            claimed = self.parts.claim()
            if claimed is not None:
                self.waiting.append(claimed)

    def save_all(self, batches: Iterator[tuple[Tensor, Tensor, Tensor]]) -> int:
        """Save a shard per claimed range, and how many rows these are; if stopped, what there is of one."""
        try:
            for z, _, rows in batches:
                _refuse_infinite(z, rows, self.images)
                while not self.waiting[0][0] <= int(rows[0]) < self.waiting[0][1]:
                    self._save()  # the last batches of that range had no readable image
                self.pending.append((rows, z))
                if self._reached() == self.waiting[0][1]:
                    self._save()
            while self.waiting:
                self._save()
        except BaseException:
            with suppress(OSError):
                if self.pending:
                    self._save(self._reached())
            for start, _ in self.waiting:
                self.parts.unclaim(start)
            raise
        return self.saved

    def _reached(self) -> int:
        """The end of the last batch."""
        size = self.parts.batch_size
        return min((int(self.pending[-1][0][-1]) // size + 1) * size, self.waiting[0][1])

    def _save(self, stop: int | None = None) -> None:
        start, end = self.waiting[0]
        stop = end if stop is None else stop
        rows, z = (torch.cat(c) for c in zip(*self.pending, strict=True)) if self.pending else _nothing()
        done = set(rows.tolist())
        reasons = {error.path: error.reason for error in self.images.bad}
        missing = [self.images.paths[row] for row in range(start, stop) if row not in done]
        self.parts.add(start, stop, rows, z, [(path, reasons[path]) for path in missing if path in reasons])
        self.waiting.popleft()
        self.pending.clear()
        self.saved += stop - start


def resolve_device(name: str) -> torch.device:
    """A device by name; ``auto`` is the first available of cuda, mps and cpu."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise unknown("device", name, ("auto", "cpu", "cuda", "cuda:1", "mps")) from error
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {name!r} cannot be used here ({reason}): use auto or cpu") from error
    return device


def _embedded(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor, Tensor]],
    *,
    device: torch.device | str,
    precision: torch.dtype | None,
    on_batch: Callable[[int], None],
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    was_training = model.training
    model.eval()
    kind = torch.device(device).type
    channels_last = getattr(model, "channels_last", True)
    format = torch.channels_last if channels_last else torch.contiguous_format
    try:
        for images, labels, rows in batches:
            images = images.to(device, non_blocking=True)
            if images.ndim == 4:
                images = images.contiguous(memory_format=format)
            try:
                with torch.inference_mode(), torch.autocast(kind, precision, enabled=precision is not None):
                    z = model(images).float().cpu()
            except torch.OutOfMemoryError as error:
                raise ValueError(
                    f"a batch of {len(labels)} images does not fit into the memory of {device}: "
                    "choose a smaller batch size"
                ) from error
            yield z, labels, rows
            on_batch(len(labels))
    finally:
        model.train(was_training)


def _nothing() -> tuple[Tensor, Tensor]:
    return torch.empty(0, dtype=torch.int64), torch.empty(0, 0)


def _refuse_infinite(z: Tensor, rows: Tensor, images: ImageDataset) -> None:
    wrong = (~z.isfinite().all(1)).nonzero()[:, 0]
    if len(wrong):
        path = images.paths[int(rows[wrong[0]])]
        raise ValueError(f"the embedding of {path} is not finite: compute in fp32, or look at the weights")
