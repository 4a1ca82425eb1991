"""Whole rows of similarities, sorted exactly: for what the quick ways cannot tell, and for classes of thousands."""

import torch
from jaxtyping import Int64
from torch import Tensor

from iaa.retrieval.similarity import GRID, Points

_BLOCK = 4096


def full_rows(
    query: Points, gallery: Points, rows: Int64[Tensor, " b"]
) -> tuple[Int64[Tensor, "b n"], Int64[Tensor, "b n"]]:
    """Key and gallery index of everything, nearest first, ties by the lower index; in leave-one-out without self."""
    key = torch.cat([_keys(query, gallery, rows, part) for part in _parts(gallery)], 1)
    if query is gallery:
        key[torch.arange(len(rows), device=key.device), rows] = torch.iinfo(torch.int64).min
    key, order = key.sort(dim=1, descending=True, stable=True)
    last = -1 if query is gallery else None
    return key[:, :last], order[:, :last]


def rows_at_once(gallery_size: int, budget: int) -> int:
    """How many rows fit into the budget: keys, order, and the sort's own copies of both."""
    return max(1, budget // (48 * gallery_size))


def _parts(gallery: Points) -> tuple[Tensor, ...]:
    return torch.arange(len(gallery), device=gallery.device).split(_BLOCK)


def _keys(query: Points, gallery: Points, rows: Tensor, part: Tensor) -> Tensor:
    """The same keys as ``Points.key``: a float64 product, and pair by pair where its rounding could matter."""
    x, y = query.block(rows, torch.float64), gallery.block(part, torch.float64)
    value = x @ y.T
    if query.centre is not None:
        value -= (x.square().sum(1)[:, None] + y.square().sum(1)) / 2
    value *= GRID
    key = value.round()
    noise = (query.raw.shape[1] + 16) * 2.0**-52 * GRID
    row, column = ((value - key).abs_() > 0.5 - noise).nonzero(as_tuple=True)
    key = key.long()
    key[row, column] = query.key(rows[row], gallery, part[column])
    return key
