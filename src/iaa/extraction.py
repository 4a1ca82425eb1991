"""Pictures through a network: embeddings of a whole data set, as the network sees it when it is used."""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


@torch.inference_mode()
def embed_batches(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor, Tensor]],
    *,
    device: torch.device | str = "cpu",
    precision: torch.dtype | None = None,
    on_batch: Callable[[int], None] = lambda pictures: None,
) -> tuple[Float[Tensor, "N D"], Int[Tensor, "N"], Int[Tensor, "N"]]:
    """Embeddings (float32, on the CPU), labels and row numbers of all batches of (images, labels, rows).

    The model is used in evaluation mode and left as it was found. ``precision`` is that of autocast;
    ``on_batch`` is told how many pictures a batch had.
    """
    was_training = model.training
    model.eval()
    parts = []
    try:
        for images, labels, rows in batches:
            images = images.to(device, non_blocking=True)
            with torch.autocast(torch.device(device).type, dtype=precision, enabled=precision is not None):
                z = model(images)
            parts.append((z.float().cpu(), labels, rows))
            on_batch(len(labels))
    finally:
        model.train(was_training)
    if not parts:
        raise ValueError("there are no pictures to embed")
    z, labels, rows = (torch.cat(column) for column in zip(*parts, strict=True))
    return z, labels, rows
