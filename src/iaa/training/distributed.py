"""Several processes as one: embeddings of all ranks in one batch, with gradient."""

import gc
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor


def active() -> bool:
    """Whether there are other ranks."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def leads() -> bool:
    """Whether this is the rank that writes and prints."""
    return not active() or dist.get_rank() == 0


def leave() -> None:
    """End the process group with its threads; one that outlives the interpreter may abort the process."""
    gc.collect()  # a wrapped network in a cycle keeps the group alive
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def gather(
    z: Float[Tensor, "B D"], labels: Int[Tensor, "B"]
) -> tuple[Float[Tensor, "N D"], Int[Tensor, "N"]]:
    """The embeddings and labels of all ranks in their order; ranks may bring different numbers.

    Every rank then computes the same loss. The gradient a rank gets for its embeddings is the sum of all
    ranks', and the average over ranks that follows for the weights makes it that of the one common loss.
    """
    if not active():
        return z, labels
    embeddings: Tensor = _Gather.apply(z)  # type: ignore[no-untyped-call]
    return embeddings, collect(labels)


def collect(part: Tensor) -> Tensor:
    """All ranks' rows in the order of ranks, without gradient."""
    if not active():
        return part
    sizes = _sizes(part)
    padded = part.new_zeros((max(sizes), *part.shape[1:]))
    padded[: len(part)] = part.detach()
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([whole[:size] for whole, size in zip(parts, sizes, strict=True)])


def average_gradients(module: torch.nn.Module) -> None:
    """The same gradient on every rank, for weights outside the network (proxies of a loss)."""
    for parameter in module.parameters() if active() else ():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def share_buffers(module: torch.nn.Module) -> None:
    """The first rank's buffers on every rank: batch norm has other running statistics on each."""
    for buffer in module.buffers() if active() else ():
        dist.broadcast(buffer, 0)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, z: Tensor) -> Tensor:
        sizes = _sizes(z)
        rank = dist.get_rank()
        context.mine = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        return collect(z)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient[context.mine]


def _sizes(part: Tensor) -> list[int]:
    sizes = [torch.zeros(1, dtype=torch.long, device=part.device) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(part)], device=part.device))
    return [int(size) for size in sizes]
