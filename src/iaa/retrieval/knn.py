"""Exact nearest neighbours: blocked products, pruned by group maxima, close calls settled in float64."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from iaa.retrieval.cosine import GRID, Points, full_precision, points
from iaa.retrieval.full_sort import full_rows, parts_of
from iaa.retrieval.input_checks import as_vectors

BUDGET = 256 * 2**20
"""Bytes that a search may use besides the vectors themselves."""
_GROUP, _SPARE = 32, 8  # spare: room for near ties at the last position
_WIDTH, _AT_ONCE = 16384, 2**21


@dataclass(frozen=True)
class Neighbors:
    """The nearest gallery items of each query, nearest first."""

    index: Int64[Tensor, "q k"]
    value: Float[Tensor, "q k"]
    """Cosine similarity (falling) or Euclidean distance (rising); to float32 accuracy, in exact order."""


def without(near: Neighbors, ignored: Bool[Tensor, "q k"], count: int) -> Neighbors:
    """The first ``count`` that are not ignored, in their order; index -1 where there are fewer."""
    last = ignored.int().argsort(dim=1, stable=True)[:, :count]
    index = near.index.where(~ignored, -1)
    return Neighbors(index.gather(1, last), near.value.gather(1, last))


def knn(
    query: Tensor,
    gallery: Tensor | Points | None = None,
    *,
    k: int,
    distance: str = "cosine",
    budget: int = BUDGET,
    tick: Callable[[float], None] = lambda done: None,
) -> Neighbors:
    """The ``k`` nearest of the gallery, or of all others when there is none; self is left out by identity.

    Ties go to the lower index; the order depends neither on ``budget`` nor on threads or device. Memory is
    the result and ``budget``, whatever the size of the gallery. A gallery that is asked often may come as
    ``points`` made before, for cosine alone: Euclidean distance is scaled by queries and gallery together.
    """
    z = as_vectors(query, "query")
    ready = gallery if isinstance(gallery, Points) else None
    if ready is not None and (distance != "cosine" or ready.centre is not None):
        raise ValueError("a gallery of points answers by cosine alone: give the vectors themselves")
    other = ready.raw if ready is not None else None if gallery is None else as_vectors(gallery, "gallery")
    size = len(z if other is None else other)
    if other is not None and other.shape[1] != z.shape[1]:
        raise ValueError(f"the gallery must have the queries' dimension {z.shape[1]}, got {other.shape[1]}")
    if not 1 <= k <= size - (other is None):
        raise ValueError(f"k must lie in [1, {size - (other is None)}], the neighbours a query has, got {k}")
    mine, target = points(z, distance=distance, other=None if ready is not None else other)
    target = target if ready is None else ready
    rows_per_step = max(1, min(1024, budget // (12 * min(size, _WIDTH) + 96 * _GROUP * (k + _SPARE))))
    result = Neighbors(
        torch.empty(len(z), k, dtype=torch.int64, device=z.device), z.new_empty(len(z), k).float()
    )
    with full_precision(z.device):
        for rows in torch.arange(len(z), device=z.device).split(rows_per_step):
            _search(result, mine, target, rows, k, budget)
            tick(float(rows[-1] + 1) / len(z))
    return result


def _search(result: Neighbors, query: Points, gallery: Points, rows: Tensor, k: int, budget: int) -> None:
    width = max(_WIDTH, min(_AT_ONCE, budget // 16) // len(rows))  # few queries: long stretches
    value, index = _nearest(query, gallery, rows, min(k + _SPARE, len(gallery)), width)
    slack = 2 * query.error
    # everything that may belong to the k nearest is listed only if the list reaches clearly below the k-th
    clear = (value[:, k - 1] - value[:, -1] > slack) | (value[:, -1] == -torch.inf)
    clear |= torch.tensor(value.shape[1] == len(gallery))
    exact = value.double().mul_(GRID)
    close = torch.zeros_like(value, dtype=torch.bool)
    close[:, 1:] = value[:, :-1] - value[:, 1:] <= slack
    close[:, :-1] |= close[:, 1:].clone()
    row, position = (close & (value > -torch.inf)).nonzero(as_tuple=True)
    exact[row, position] = query.key(rows[row], gallery, index[row, position]).double()
    index, by_index = index.sort(dim=1)
    exact, order = exact.gather(1, by_index).sort(dim=1, descending=True, stable=True)
    _store(result, query, rows[clear], exact[clear, :k], index.gather(1, order)[clear, :k])
    for part in parts_of(rows[~clear], gallery, budget):
        key, order = full_rows(query, gallery, part)
        _store(result, query, part, key[:, :k].double(), order[:, :k])


def _nearest(query: Points, gallery: Points, rows: Tensor, count: int, width: int) -> tuple[Tensor, Tensor]:
    """The ``count`` largest float32 similarities of each row, falling, and where they are."""
    best = torch.full((len(rows), count), -torch.inf, device=rows.device)
    where = torch.zeros(len(rows), count, dtype=torch.int64, device=rows.device)
    block = query.block(rows)
    for start in range(0, len(gallery), width):
        similarity = gallery.products(block, start, start + width)
        if query is gallery:
            own = ((rows >= start) & (rows < start + similarity.shape[1])).nonzero()[:, 0]
            similarity[own, rows[own] - start] = -torch.inf
        value, index = _top(similarity, count)
        best, order = torch.cat([best, value], 1).topk(count, dim=1)
        where = torch.cat([where, index + start], 1).gather(1, order)
    return best, where


def _top(similarity: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest of each row. They lie in the groups of largest maxima, so the rest is never sorted."""
    height, width = similarity.shape
    groups = width // _GROUP
    if count * 4 > groups:
        return similarity.topk(min(count, width), dim=1)
    whole = groups * _GROUP
    grouped = similarity[:, :whole].unflatten(1, (groups, _GROUP))
    chosen = grouped.amax(2).topk(count, dim=1, sorted=False).indices
    values = grouped.gather(1, chosen[:, :, None].expand(-1, -1, _GROUP)).flatten(1)
    index = (chosen[:, :, None] * _GROUP + torch.arange(_GROUP, device=chosen.device)).flatten(1)
    rest = torch.arange(whole, width, device=chosen.device).expand(height, -1)
    values, index = torch.cat([values, similarity[:, whole:]], 1), torch.cat([index, rest], 1)
    value, order = values.topk(count, dim=1)
    return value, index.gather(1, order)


def _store(result: Neighbors, query: Points, rows: Tensor, key: Tensor, index: Tensor) -> None:
    value = key / GRID
    if query.centre is not None:
        value = (2 * value).abs().sqrt() / query.scale[0]
    result.index[rows], result.value[rows] = index, value.float()
