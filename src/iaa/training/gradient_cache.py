"""Large batches in the memory of a small one: activations are recomputed part by part on the way back."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from iaa.method.checks import check_whole


def embed_in_parts(model: nn.Module, images: Tensor, *, micro: int | None) -> Tensor:
    """Embeddings of a batch, ``micro`` images at a time, with the gradients of the whole batch.

    Each part keeps its images alone and runs a second time when its gradient arrives, in the same precision
    and with the same random numbers: memory of one part, at the cost of a second forward pass. Losses that
    compare all samples of a batch see all of them.
    """
    if micro is None:
        embeddings: Tensor = model(images)
        return embeddings
    check_whole("micro", micro, least=1)
    if len(images) <= micro or not torch.is_grad_enabled():
        return torch.cat([model(part) for part in images.split(micro)]) if len(images) else model(images)
    for name in _depends_on_batch(model):
        raise ValueError(
            f"batch.micro needs layers that treat every image alone, but {name} normalises over the batch: "
            "freeze batch normalisation (network.freeze_bn), or leave batch.micro out"
        )
    parts = [checkpoint(model, part, use_reentrant=False) for part in images.split(micro)]
    return torch.cat(parts)


def _depends_on_batch(model: nn.Module) -> Iterator[str]:
    """Layers of batch normalisation that take their statistics from the batch."""
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None):
            yield name or type(module).__name__
