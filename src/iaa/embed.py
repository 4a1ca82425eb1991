"""Run images through a network in evaluation mode: embeddings of a whole dataset."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from iaa.data.image_dataset import ImageDataset, loader
from iaa.retrieval.shards import Shards

PRECISIONS: dict[str, torch.dtype | None] = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
"""The type that autocast computes in, by the name used in every command; None is full precision."""


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
    batch_size: int = 64,
    device: torch.device | str = "cpu",
    precision: torch.dtype | None = None,
    workers: int | None = None,
    save_every: int = 1024,
    on_batch: Callable[[int], None] = lambda images: None,
) -> None:
    """Embed what ``parts`` does not hold yet, saving every ``save_every`` images and when stopped.

    Batches begin at multiples of ``batch_size`` however often the work was stopped: the same images meet in
    the same batch, so that the embeddings are the same to the bit.
    """
    for name, value in (("batch_size", batch_size), ("save_every", save_every)):
        if value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}")
    total = len(images)
    batches = [range(at, min(at + batch_size, total)) for at in range(parts.done, total, batch_size)]
    pending: list[tuple[Tensor, Tensor]] = []
    known_bad = len(images.bad)

    def reached() -> int:
        return min((int(pending[-1][0][-1]) // batch_size + 1) * batch_size, total) if pending else parts.done

    def save(stop: int) -> None:
        nonlocal known_bad
        if stop > parts.done:
            rows, z = (torch.cat(c) for c in zip(*pending, strict=True)) if pending else _nothing()
            bad = [(error.path, error.reason) for error in images.bad[known_bad:]]
            parts.add(stop, rows, z, bad)
            known_bad += len(bad)
            pending.clear()

    batches_done = _embedded(
        model,
        loader(images, batches=batches, workers=workers),
        device=device,
        precision=precision,
        on_batch=on_batch,
    )
    try:
        for z, _, rows in batches_done:
            _refuse_infinite(z, rows, images)
            pending.append((rows, z))
            if reached() - parts.done >= save_every:
                save(reached())
        save(total)
    except BaseException:
        with suppress(OSError):
            save(reached())
        raise


def resolve_device(name: str) -> torch.device:
    """A device by name; ``auto`` is the first available of cuda, mps and cpu."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
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
    try:
        for images, labels, rows in batches:
            images = images.to(device, non_blocking=True)
            if images.ndim == 4:  # faster for convolutions
                images = images.contiguous(memory_format=torch.channels_last)
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
