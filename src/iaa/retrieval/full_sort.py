"""Whole rows of similarities, sorted exactly: for what the quick ways cannot tell, and for huge classes."""

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from iaa.retrieval.cosine import Points

IGNORED = torch.iinfo(torch.int64).min
_BLOCK = 4096


def full_rows(
    query: Points,
    gallery: Points,
    rows: Int64[Tensor, " b"],
    ignored: Bool[Tensor, "b n"] | None = None,
) -> tuple[Int64[Tensor, "b n"], Int64[Tensor, "b n"]]:
    """Key and gallery index of everything, nearest first, ties by the lower index.

    What is ``ignored``, and in leave-one-out the query itself, comes last with the key ``IGNORED``.
    """
    key = torch.cat([query.keys(rows, gallery, part) for part in _parts(gallery)], 1)
    if query is gallery:
        key[torch.arange(len(rows), device=key.device), rows] = IGNORED
    if ignored is not None:
        key[ignored] = IGNORED
    key, order = key.sort(dim=1, descending=True, stable=True)
    return key, order


def parts_of(rows: Int64[Tensor, " q"], gallery: Points, budget: int) -> list[Tensor]:
    """As many rows at once as fit into the budget: keys, order, and the sort's own copies of both."""
    return list(rows.split(max(1, budget // (48 * len(gallery))))) if len(rows) else []


def _parts(gallery: Points) -> tuple[Tensor, ...]:
    parts: tuple[Tensor, ...] = torch.arange(len(gallery), device=gallery.device).split(_BLOCK)
    return parts
