"""Go through a similarity matrix tile by tile, each tile once even if it stands for two."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from iaa.retrieval.cosine import Points
from iaa.retrieval.threads import on_every_core

SIDE = 1024
"""Of a tile: small enough that what is done with it finds it in a cache."""
_BAND = 512  # rows of a small set multiplied at once, by all cores together
_ALONE = 1024  # rows whose neighbours one core finds sooner than several that wait for each other
_SMALL = 256  # rows that are not worth sharing out among threads
_AREA = 2**21  # similarities at once of a few queries, whose tiles are wide


@dataclass(frozen=True)
class Tile:
    """Similarities of queries from ``top`` on with gallery items from ``left`` on."""

    similarity: Float[Tensor, "r c"]
    top: int
    left: int
    mirrored: bool
    """Leave-one-out, off the diagonal: read along the columns, it is the tile on the other side as well."""


def each_tile(
    query: Points,
    gallery: Points,
    rows: Int64[Tensor, " q"],
    columns: Int64[Tensor, " n"] | None,
    look: Callable[[Tile], None],
    tick: Callable[[float], None],
    side: int = SIDE,
) -> None:
    """Call ``look`` on every tile, from as many threads as torch may use.

    ``columns``: the order of the gallery, None for its own. In leave-one-out it begins with ``rows``.
    """
    size = len(gallery)
    if query is gallery and len(rows) == size <= 2 * side:
        _strips(query, rows, look)
        return tick(1.0)
    mirror = len(rows) if query is gallery else 0
    if mirror:
        side = wide = min(side, _rounded(size / -(-size // side)))  # as many blocks, but of equal size
    else:
        wide = max(side, _AREA // max(len(rows), 1))
        side = min(side, max(_SMALL, -(-len(rows) // torch.get_num_threads())))
    corners = list(_corners(len(rows), size, side, wide, mirror))
    jobs, lock, done = iter(corners), Lock(), 0

    def work() -> None:
        nonlocal done
        buffer = torch.empty(min(side, len(rows)) * min(wide, size), device=query.device)
        while True:
            with lock:
                job = next(jobs, None)
            if job is None:
                return
            top, left = job
            height = min(side, len(rows) - top)
            width = min(wide, (mirror if left < mirror else size) - left)
            items = slice(left, left + width) if columns is None else columns[left : left + width]
            block = query.block(rows[top : top + height])
            similarity = gallery.products(block, items, out=buffer[: height * width].view(height, width))
            look(Tile(similarity, top, left, top < left < mirror))
            with lock:
                done += 1
                tick(done / len(corners))

    if len(corners) == 1:
        work()
    else:
        on_every_core(work, query.device)


def _strips(points: Points, rows: Int64[Tensor, " n"], look: Callable[[Tile], None]) -> None:
    """The same for a small set by whole rows: half of the matrix is multiplied, the other half copied."""
    whole = torch.empty(len(rows), len(rows), device=points.device)
    for top in range(0, len(rows), _BAND):
        end = top + _BAND
        right = points.products(points.block(rows[top:end]), slice(top, len(rows)), out=whole[top:end, top:])
        whole[end:, top:end] = right[:, _BAND:].T
    if len(rows) <= _ALONE:
        return look(Tile(whole, 0, 0, False))
    height = -(-len(rows) // torch.get_num_threads())
    strips = iter(range(0, len(rows), height))

    def look_along() -> None:
        for top in strips:  # next() on it is one step that threads share safely
            look(Tile(whole[top : top + height], top, 0, False))

    on_every_core(look_along, points.device)


def _rounded(side: float) -> int:
    """Up to a number of rows that products are fast with."""
    return math.ceil(side / 32) * 32


def _corners(height: int, width: int, side: int, wide: int, mirror: int) -> Iterator[tuple[int, int]]:
    """Top and left of every tile: first the diagonal, then what lies above it, then what has no mirror."""
    for left in range(0, mirror, side):
        yield left, left
    for left in [*range(0, mirror, side), *range(mirror, width, wide)]:
        for top in range(0, min(left, height), side) if left < mirror else range(0, height, side):
            yield top, left
