"""Exact nearest neighbours: products in tiles, what beats a list sorted into it, close calls in float64."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from iaa.retrieval.cosine import GRID, Points, full_precision, points
from iaa.retrieval.full_sort import IGNORED, full_rows, parts_of
from iaa.retrieval.input_checks import as_vectors
from iaa.retrieval.threads import on_every_core
from iaa.retrieval.tiles import Tile, each_tile
from iaa.retrieval.top_lists import TopLists, in_exact_order

BUDGET = 256 * 2**20
"""Bytes for the lists of a search; the tiles it looks at take some 60 MiB at most for every thread."""
_SPARE = 8  # room for near ties at the last position
_LENGTH = 128  # up to this length all lists are made together
_ROWS = 1024  # lists brought into exact order at once


@dataclass(frozen=True)
class Neighbors:
    """The nearest gallery items of each query, nearest first."""

    index: Int64[Tensor, "q k"]
    """Gallery rows; -1 where there is none left."""
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
    the result, ``budget`` and some tiles, whatever the size of the gallery. A gallery that is asked often may
    come as ``points`` made before, for cosine alone: Euclidean distance is scaled by queries and gallery.
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
    index = torch.empty(len(z), k, dtype=torch.int64, device=z.device)
    value = torch.empty(len(z), k, device=z.device)

    def take(rows: Tensor, near: Neighbors) -> None:
        index[rows], value[rows] = near.index, near.value

    nearest(mine, target, torch.full((len(z),), k, device=z.device), take, budget=budget, tick=tick)
    return Neighbors(index, value)


def nearest(
    query: Points,
    gallery: Points,
    wanted: Int64[Tensor, " q"],
    take: Callable[[Int64[Tensor, " b"], Neighbors], None],
    *,
    groups: tuple[Int64[Tensor, " q"], Int64[Tensor, " n"]] | None = None,
    hits: Callable[[Int64[Tensor, " b"], Int64[Tensor, "b k"]], Bool[Tensor, "b k"]] | None = None,
    reach: Int64[Tensor, " q"] | None = None,
    budget: int = BUDGET,
    tick: Callable[[float], None] = lambda done: None,
) -> None:
    """Hand each query's nearest to ``take``, some rows at a time: as many as it wants or more, 0 for none.

    ``groups`` number queries and gallery items: items of a query's own group are left out. With ``hits``
    and ``reach`` the order is only exact as far as it decides where the first hit is, and those within reach.
    Threads may call ``take`` at once.
    """
    search = _Search(query, gallery, take, groups, hits, reach, budget)
    passes = list(_passes(wanted, len(gallery), budget))
    total, before = sum(map(len, passes)), 0

    def tick_all(done: float) -> None:
        tick((before + len(rows) * done) / total)

    with full_precision(query.device):
        for rows in passes:
            search.run(rows, min(int(wanted[rows].max()), len(gallery)), tick_all)
            before += len(rows)


def _passes(wanted: Tensor, size: int, budget: int) -> Iterator[Tensor]:
    """Queries whose lists fit into the budget together; those of much longer lists come in later passes."""
    band = (wanted.clamp(min=_LENGTH) / _LENGTH).log2().div(2).ceil()
    for number in band[wanted > 0].unique():
        rows = ((band == number) & (wanted > 0)).nonzero()[:, 0]
        length = min(int(wanted[rows].max()) + _SPARE, size)
        yield from rows.split(max(1, budget // (8 * length)))


@dataclass(frozen=True, eq=False)
class _Search:
    """One call of ``nearest``."""

    query: Points
    gallery: Points
    take: Callable[[Tensor, Neighbors], None]
    groups: tuple[Tensor, Tensor] | None
    hits: Callable[[Tensor, Tensor], Tensor] | None
    reach: Tensor | None
    budget: int

    def run(self, rows: Tensor, k: int, tick: Callable[[float], None]) -> None:
        """Find the ``k`` nearest of these rows in one pass through the gallery."""
        columns = None
        if self.query is self.gallery and len(rows) < len(self.gallery):
            columns = torch.cat([rows, _all_but(rows, len(self.gallery))])
        lists = TopLists(len(rows), min(k + _SPARE, len(self.gallery)), rows.device)

        def look(tile: Tile) -> None:
            self._leave_out(tile, rows, columns)
            lists.add(tile)

        each_tile(self.query, self.gallery, rows, columns, look, tick)
        unclear: list[Tensor] = []
        parts = iter(torch.arange(len(rows), device=rows.device).split(_ROWS))

        def finish() -> None:
            for part in parts:  # next() on it is one step that threads share safely
                value, index = lists.nearest(part)
                listed = value > -torch.inf
                index = (index if columns is None else columns[index]).where(listed, -1)
                unclear.append(self._settle(rows[part], value, index, k))

        if len(rows) > _ROWS:
            on_every_core(finish, self.query.device)
        else:
            finish()
        self._sort(torch.cat(unclear), k)

    def _leave_out(self, tile: Tile, rows: Tensor, columns: Tensor | None) -> None:
        """What must not answer a query gets the similarity -inf."""
        if self.groups is not None:
            height, width = tile.similarity.shape
            items = slice(tile.left, tile.left + width)
            asking = self.groups[0][rows[tile.top : tile.top + height]]
            own = asking[:, None] == self.groups[1][items if columns is None else columns[items]]
            tile.similarity.masked_fill_(own, -torch.inf)
        elif self.query is self.gallery:
            tile.similarity.diagonal(tile.top - tile.left).fill_(-torch.inf)

    def _settle(self, rows: Tensor, value: Tensor, index: Tensor, k: int) -> Tensor:
        """Hand over rows whose lists hold all that may belong to the ``k`` nearest; returns the others."""
        clear = value[:, k - 1] - value[:, -1] > 2 * self.query.error
        clear |= (value[:, -1] == -torch.inf) | (value.shape[1] == len(self.gallery))
        hit = None if self.hits is None else self.hits(rows, index)
        reach = None if self.reach is None else self.reach[rows]
        in_exact_order(self.query, self.gallery, rows, value, index, hit, reach)
        self._hand_over(rows[clear], value[clear, :k], index[clear, :k])
        return rows[~clear]

    def _sort(self, rows: Tensor, k: int) -> None:
        """Sort whole rows: thousands of equal vectors, a collapsed model."""
        for part in parts_of(rows, self.gallery, self.budget):
            own = None if self.groups is None else self.groups[0][part][:, None] == self.groups[1]
            key, index = full_rows(self.query, self.gallery, part, own)
            value = (key[:, :k].double() / GRID).masked_fill_(key[:, :k] == IGNORED, -torch.inf)
            self._hand_over(part, value, index[:, :k])

    def _hand_over(self, rows: Tensor, value: Tensor, index: Tensor) -> None:
        index = index.where(value > -torch.inf, -1)
        if self.query.centre is not None:
            value = (2 * value.double()).abs().sqrt() / self.query.scale[0]
        self.take(rows, Neighbors(index, value.float()))


def _all_but(rows: Tensor, size: int) -> Tensor:
    return torch.ones(size, dtype=torch.bool, device=rows.device).index_fill(0, rows, False).nonzero()[:, 0]
