"""The largest similarities of every query so far, kept while tiles of them come by; and their exact order."""

from threading import Lock

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from iaa.retrieval.cosine import GRID, Points
from iaa.retrieval.tiles import GROUP, Tile

_FINE = 8  # values in a group where larger groups are fewer than a list is long
_FEW = 4  # candidates are few if they are less than one in so many


class TopLists:
    """``length`` largest float32 similarities of each query, in any order, and the columns they stood in."""

    def __init__(self, size: int, length: int, device: torch.device) -> None:
        self.value = torch.full((size, length), -torch.inf, device=device)
        self.least = torch.full((size,), -torch.inf, device=device)
        self.column = torch.full((size, length), -1, dtype=torch.int32, device=device)
        self._locks: dict[int, Lock] = {}

    def add(self, tile: Tile) -> None:
        """Take what a tile's rows find among its columns, and if it is mirrored, the other way round."""
        self._add(tile.similarity[: tile.height], 1, tile.top, tile.left)
        if tile.mirrored:
            self._add(tile.similarity[:, : tile.width], 0, tile.left, tile.top)

    def _add(self, similarity: Tensor, along: int, first: int, left: int) -> None:
        """Take what queries from ``first`` on find in items from ``left`` on, which lie ``along`` 0 or 1."""
        count, length = similarity.shape[1 - along], self.value.shape[1]
        threshold = self.least[first : first + count]
        groups = similarity.unflatten(along, (-1, GROUP))
        maxima = groups.amax(along + 1)
        if along == 1 and float(threshold.amin()) == -torch.inf:
            threshold = _reached(maxima, length)
        above = maxima > threshold.unsqueeze(along)
        query, group = (above if along == 1 else above.T).nonzero(as_tuple=True)
        if not len(query):
            return
        if len(query) * GROUP * _FEW < similarity.numel():
            values = groups[query, group] if along == 1 else groups[group, :, query]
            which, inside = (values > threshold[query][:, None]).nonzero(as_tuple=True)
            flat = query[which], values[which, inside], group[which] * GROUP + inside
            touched, value, column = _filled_up(*flat)
        else:
            touched, value, column = _many(similarity if along == 1 else similarity.T, threshold, length)
        with self._locks.setdefault(first, Lock()):
            touched += first
            value, order = torch.cat([self.value[touched], value], 1).topk(length, dim=1, sorted=False)
            column = torch.cat([self.column[touched], (column + left).int()], 1)
            self.value[touched], self.column[touched] = value, column.gather(1, order)
            self.least[touched] = value.amin(1)


def _reached(maxima: Float[Tensor, "q g"], length: int) -> Float[Tensor, " q"]:
    """What ``length`` values surely exceed, given the maxima of groups; -inf if these are too few."""
    if length > maxima.shape[1]:
        return maxima.new_full((len(maxima),), -torch.inf)
    least = maxima.topk(length, dim=1, sorted=False).values.amin(1)
    return least.nextafter(least.new_tensor(-torch.inf))


def _many(similarity: Tensor, threshold: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same where most groups have a candidate, as in the first tiles that a query meets."""
    similarity = similarity.contiguous()
    if float(threshold.amin()) == -torch.inf:
        threshold = _reached(similarity.unflatten(1, (-1, _FINE)).amax(2), length)
    query, column = (similarity > threshold[:, None]).nonzero(as_tuple=True)
    if len(query) * _FEW < similarity.numel():
        return _filled_up(query, similarity[query, column], column)
    value, column = similarity.topk(min(length, similarity.shape[1]), dim=1, sorted=False)
    return torch.arange(len(similarity), device=similarity.device), value, column


def _filled_up(
    query: Int64[Tensor, " c"], values: Float[Tensor, " c"], columns: Int64[Tensor, " c"]
) -> tuple[Int64[Tensor, " t"], Float[Tensor, "t m"], Int64[Tensor, "t m"]]:
    """The queries that occur, and one row for each of its values and columns, filled up with -inf."""
    touched, slot, count = query.unique_consecutive(return_inverse=True, return_counts=True)
    position = torch.arange(len(slot), device=slot.device) - (count.cumsum(0) - count)[slot]
    value = values.new_full((len(touched), int(count.max()) if len(count) else 0), -torch.inf)
    column = torch.zeros_like(value, dtype=torch.int64)
    value[slot, position], column[slot, position] = values, columns
    return touched, value, column


def in_exact_order(
    query: Points,
    gallery: Points,
    rows: Int64[Tensor, " q"],
    value: Float[Tensor, "q k"],
    index: Int64[Tensor, "q k"],
    hit: Bool[Tensor, "q k"] | None = None,
    reach: Int64[Tensor, " q"] | None = None,
) -> None:
    """Bring falling float32 similarities into the order of the grid, ties by the lower index, in place.

    What is further apart than the error of two products stays where it is: only chains of closer ones move.
    Where all that matters is the position of the first ``hit`` and of those up to ``reach``, so do chains
    that cannot change these.
    """
    apart = torch.ones_like(value, dtype=torch.bool)
    apart[:, 1:] = ~(value[:, :-1] - value[:, 1:] <= 2 * query.error)
    chain = apart.flatten().cumsum(0) - 1
    size = chain.bincount()
    matters = size > 1
    if hit is not None and reach is not None:
        row, start = apart.nonzero(as_tuple=True)
        before = (hit.cumsum(1) - hit.long())[row, start]
        hits = torch.zeros_like(size).index_add_(0, chain, hit.flatten().long())
        matters &= (hits > 0) & (hits < size) & ((start < reach[row]) | (before == 0))
    where = matters[chain].nonzero()[:, 0]
    row, item = where // value.shape[1], index.flatten()[where]
    key = query.key(rows[row], gallery, item)
    order = item.argsort(stable=True)
    order = order[((row << 34) - key)[order].argsort(stable=True)]
    index.view(-1)[where] = item[order]
    value.view(-1)[where] = (key[order].double() / GRID).float()
