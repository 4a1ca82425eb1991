"""Small operations on ranked rows: ranks within classes, and neighbour lists without the query itself."""

import torch
from jaxtyping import Int64, Integer
from torch import Tensor


def rank_within_class(labels: Integer[Tensor, " n"]) -> Int64[Tensor, " n"]:
    """How many earlier rows have the same label.

    >>> rank_within_class(torch.tensor([7, 3, 7, 7, 3])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = labels.argsort(stable=True)
    grouped = labels[order].contiguous()
    rank = torch.empty_like(order)
    first = torch.searchsorted(grouped, grouped)  # where the class of a row begins
    rank[order] = torch.arange(len(labels), device=labels.device) - first
    return rank


def drop_self(index: Tensor, value: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Ranked lists with one entry less: ``own`` where it occurs, else the last; the order is kept."""
    dropped = index == own
    dropped[..., -1] |= ~dropped.any(-1)
    order = dropped.to(torch.uint8).argsort(dim=-1, stable=True)[..., :-1]
    return index.gather(-1, order), value.gather(-1, order)
