"""Ranks of all positives by counting the strangers ahead of them: no top-k, no list of neighbours.

A negative changes a metric only if it beats a positive that still counts. That threshold is known per query
and rises as strangers are found, so that of a tile of similarities little more than its maxima is looked at.
In leave-one-out the similarities are symmetric: one tile serves its rows as queries, then its columns.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from iaa.retrieval.cosine import GRID
from iaa.retrieval.positives import Items, Positives
from iaa.retrieval.tiles import GROUP, SIDE, Tile, each_tile

_CHUNK = 2**18  # candidates handled at once


@dataclass
class Counter:
    """Counts into ``positives.strangers``; the state between tiles is one threshold per query.

    ``rows`` and ``columns`` are the order in which queries and gallery are gone through (random is best; in
    leave-one-out both are the same).
    """

    positives: Positives
    query: Items
    gallery: Items
    rows: Int64[Tensor, " q"]
    columns: Int64[Tensor, " n"]
    depth: int
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.row_labels, self.column_labels = self.query.labels[self.rows], self.gallery.labels[self.columns]
        self.error = self.query.points.error
        self.slack = int(self.error * GRID) + 2
        self.close = torch.zeros_like(self.rows)
        self.limit = max(64, len(self.columns) // 32)
        self.threshold = torch.empty(len(self.rows), device=self.rows.device)
        self._raise(0, len(self.rows))

    @property
    def hard(self) -> Tensor:
        """Queries with so many close calls that sorting whole rows is cheaper; their counts are void."""
        return self.close > self.limit

    def run(self, tick: Callable[[float], None], side: int = SIDE) -> None:
        """Look at every tile once."""
        each_tile(self.query.points, self.gallery.points, self.rows, self.columns, self.look, tick, side)

    def look(self, tile: Tile) -> None:
        """Count what the tile's rows find among its columns, and if mirrored, the other way round.

        Rows do not come again before the next stripe; its columns are queries in all its tiles, and their
        thresholds rise after the last.
        """
        self._look(tile.similarity, 1, tile.top, tile.left, tile.height)
        if tile.mirrored:
            last = tile.top + tile.height == len(self.rows)
            self._look(tile.similarity, 0, tile.left, tile.top, tile.width, rises=last)

    def _look(
        self, similarity: Tensor, along: int, first: int, left: int, height: int, *, rises: bool = True
    ) -> None:
        threshold = self.threshold[first : first + height]
        for owner, item, value in candidates(similarity, threshold, along):
            with self.lock:
                self._count(owner + first, item + left, value)
        if rises:
            with self.lock:
                self._raise(first, first + height)

    def _raise(self, first: int, last: int) -> None:
        new = self.positives.thresholds(first, last, self.depth) - 1.5 * self.error
        self.threshold[first:last] = new.where(self.close[first:last] <= self.limit, torch.inf)

    def _count(self, owner: Tensor, item: Tensor, value: Tensor) -> None:
        stranger = self.row_labels.index_select(0, owner) != self.column_labels.index_select(0, item)
        if self.query.groups is not None:
            stranger &= ~self.query.ignores(self.rows[owner], self.gallery, self.columns[item])
        kept = stranger.nonzero()[:, 0]
        owner, item, value = (column.index_select(0, kept) for column in (owner, item, value))
        at, sure = self.positives.surely(owner, (value.double() * GRID).long(), self.slack)
        self._add(owner, at, sure)
        unsure = (~sure).nonzero()[:, 0]
        if not len(unsure):
            return
        owner, item = owner[unsure], item[unsure]
        self.close.index_add_(0, owner, torch.ones_like(owner))
        keep = self.close[owner] <= self.limit
        owner, item = owner[keep], self.columns[item[keep]]
        key = self.query.points.key(self.rows[owner], self.gallery.points, item)
        at = self.positives.position(owner, key, item)
        self._add(owner, at, torch.ones_like(at, dtype=torch.bool))

    def _add(self, owner: Tensor, at: Tensor, counts: Tensor) -> None:
        """One stranger more before the positives ``at``; behind a query's last positive it beats none."""
        counts = counts & (at < self.positives.start.index_select(0, owner + 1))
        strangers = self.positives.strangers
        strangers.index_add_(0, at.clamp(max=len(strangers) - 1), counts.to(strangers.dtype))


def candidates(
    similarity: Float[Tensor, "r c"], threshold: Float[Tensor, " q"], along: int
) -> Iterator[tuple[Int64[Tensor, " f"], Int64[Tensor, " f"], Float[Tensor, " f"]]]:
    """Query, item and value of what exceeds its query's threshold; items lie ``along`` dimension 0 or 1."""
    if along == 1:
        groups = similarity[: len(threshold)].unflatten(1, (-1, GROUP))
        query, group = (groups.amax(2) > threshold[:, None]).nonzero(as_tuple=True)
    else:
        groups = similarity[:, : len(threshold)].unflatten(0, (-1, GROUP))
        group, query = (groups.amax(1) > threshold).nonzero(as_tuple=True)
    step = _CHUNK // GROUP
    for q, g in zip(query.split(step), group.split(step), strict=True):
        values = groups[q, g] if along == 1 else groups[g, :, q]
        which, inside = (values > threshold[q][:, None]).nonzero(as_tuple=True)
        if len(which):
            yield q[which], g[which] * GROUP + inside, values[which, inside]
