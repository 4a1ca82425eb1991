"""The largest similarities of every query so far, kept while tiles of them come by; and their exact order."""

from threading import Lock

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from iaa.retrieval.cosine import GRID, Points
from iaa.retrieval.tiles import Tile

_NOTHING = 0x7F800000 << 32
"""The entry of similarity -inf, which sorts behind all others."""


class TopLists:
    """The ``length`` largest float32 similarities of each query and the columns they stood in, nearest first.

    An entry is one integer, the similarity in its upper half and the column in its lower: numpy sorts these
    in a tenth of the time that torch takes for values and their positions.
    """

    def __init__(self, size: int, length: int, device: torch.device) -> None:
        self._entry = torch.full((size, length), _NOTHING, device=device)
        self._least = torch.full((size,), -torch.inf, device=device)
        self._locks: dict[int, Lock] = {}

    def add(self, tile: Tile) -> None:
        """Take what a tile's rows find among its columns, and if it is mirrored, the other way round."""
        self._add(tile.similarity, 1, tile.top, tile.left)
        if tile.mirrored:
            self._add(tile.similarity, 0, tile.left, tile.top)

    def _add(self, similarity: Tensor, along: int, first: int, left: int) -> None:
        """Take what queries from ``first`` on find in items from ``left`` on, which lie ``along`` 0 or 1."""
        queries = slice(first, first + similarity.shape[1 - along])
        lists, threshold = self._entry[queries], self._least[queries]
        if float(threshold.amin()) == -torch.inf:
            threshold = threshold.maximum(_reached(similarity, along, lists.shape[1]))
        query, item, value = _above(similarity, along, threshold)
        if not len(query):
            return
        count = query.bincount(minlength=len(lists))
        with self._locks.setdefault(first, Lock()):
            length = lists.shape[1]
            old = length if bool((lists[:, 0] < _NOTHING).any()) else 0
            width = max(length, old + int(count.max()))
            both = lists.new_full((len(lists), width), _NOTHING)
            both[:, :old] = lists[:, :old]
            start = torch.arange(old, both.numel(), width, device=query.device) - count.cumsum(0) + count
            place = start.index_select(0, query) + torch.arange(len(query), device=query.device)
            both.view(-1).scatter_(0, place, _packed(value, item + left))
            lists.copy_(_sorted(both)[:, :length])
            self._least[queries] = _unpacked(lists[:, -1])[0]

    def nearest(self, rows: Int64[Tensor, " r"]) -> tuple[Float[Tensor, "r k"], Int64[Tensor, "r k"]]:
        """Falling similarities, -inf at the end of short lists, and their columns."""
        return _unpacked(self._entry.index_select(0, rows))


def _above(similarity: Tensor, along: int, threshold: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, item and value of every similarity above its query's threshold; the queries rise."""
    width, threshold = similarity.shape[1], threshold.unsqueeze(along)
    if similarity.device.type == "cpu":  # numpy finds them several times as fast
        where = torch.from_numpy(np.flatnonzero(similarity.numpy() > threshold.numpy()))
    else:
        where = (similarity > threshold).view(-1).nonzero()[:, 0]
    row = where // width
    column, value = where - row * width, similarity.view(-1).index_select(0, where)
    if along == 1:
        return row, column, value
    order = column.to(torch.int16).argsort(stable=True)  # quicker than by int64, and a tile is not wider
    return column.index_select(0, order), row.index_select(0, order), value.index_select(0, order)


def _reached(similarity: Tensor, along: int, length: int) -> Float[Tensor, " q"] | Tensor:
    """What ``length`` items of each query surely exceed; -inf if there are fewer."""
    width = similarity.shape[along]
    if length > width:
        return similarity.new_tensor(-torch.inf)
    size = 4 if 4 * length <= width else 1  # of groups, whose maxima are fewer to sort
    groups = similarity.narrow(along, 0, width // size * size).unflatten(along, (size, -1))
    maxima = groups.amax(along) if along == 1 else groups.amax(along).T
    least = _sorted(maxima.contiguous())[:, -length]
    return least.nextafter(least.new_tensor(-torch.inf))


def _sorted(rows: Tensor) -> Tensor:
    """Each row rising; on a CPU in place."""
    if rows.device.type != "cpu":
        return rows.sort(dim=1).values
    rows.numpy().sort(axis=1)
    return rows


def _packed(value: Float[Tensor, "..."], column: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
    """Entries: they rise where similarities fall, and among equal ones with the column."""
    bits = value.view(torch.int32)
    falling = torch.where(bits < 0, bits & 0x7FFFFFFF, ~bits)
    return (falling.long() << 32) | column


def _unpacked(entry: Int64[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Int64[Tensor, "..."]]:
    """The similarities and columns of entries."""
    falling = (entry >> 32).int()
    bits = torch.where(falling < 0, ~falling, falling | -(2**31))
    return bits.view(torch.float32), entry & 0xFFFFFFFF


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
    Where all that matters is the position of the first ``hit`` and of those up to ``reach``, so does what is
    close to none of the other kind, and chains that cannot change these.
    """
    limit = 2 * query.error
    close = torch.zeros_like(value, dtype=torch.bool)  # to the one before
    close[:, 1:] = value[:, :-1] - value[:, 1:] <= limit
    member = close.clone()
    member[:, :-1] |= close[:, 1:]
    where = member.view(-1).nonzero()[:, 0]
    row, near = where // value.shape[1], value.view(-1)[where]
    if hit is not None and reach is not None:
        kind = hit.view(-1)[where]
        mixed = _close_to_other(row, near, kind, limit)
        mixed |= _close_to_other(row.flip(0), near.flip(0), kind.flip(0), limit).flip(0)
        where, row, near = where[mixed], row[mixed], near[mixed]
        starts = torch.ones_like(where, dtype=torch.bool)
        starts[1:] = (row[1:] != row[:-1]) | (near[:-1] - near[1:] > limit)
        first, of = where[starts] % value.shape[1], row[starts]
        decides = (first < reach[of]) | (first <= hit.int().argmax(1)[of])
        moves = decides[starts.cumsum(0) - 1]
        where, row = where[moves], row[moves]
    item = index.view(-1)[where]
    key = query.key(rows[row], gallery, item)
    order = item.argsort(stable=True)
    order = order[((row << 34) - key)[order].argsort(stable=True)]
    index.view(-1)[where] = item[order]
    value.view(-1)[where] = (key[order].double() / GRID).float()


def _close_to_other(
    row: Int64[Tensor, " p"], value: Float[Tensor, " p"], hit: Bool[Tensor, " p"], limit: float
) -> Bool[Tensor, " p"]:
    """Whether the last one before it that is a hit if it is none, or the other way round, is that close."""
    place = torch.arange(len(hit), device=hit.device)
    last = [torch.where(kind, place, -1).cummax(0).values for kind in (hit, ~hit)]
    other = torch.where(hit, last[1], last[0])
    return (other >= 0) & (row[other] == row) & ((value[other] - value).abs() <= limit)
