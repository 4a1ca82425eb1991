"""Go through a similarity matrix tile by tile, each tile once even if it stands for two."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from iaa.retrieval.cosine import Points
from iaa.retrieval.threads import on_every_core

SIDE = 1024
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
    mirror = len(rows) if query is gallery and size > side else 0
    if mirror:
        side = wide = -(-size // -(-size // side))  # the same number of blocks, but of equal size
    else:
        wide = max(side, _AREA // max(len(rows), 1))
        side = min(side, -(-len(rows) // torch.get_num_threads()))
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


def _corners(height: int, width: int, side: int, wide: int, mirror: int) -> Iterator[tuple[int, int]]:
    """Top and left of every tile: first the diagonal, then what lies above it, then what has no mirror."""
    for left in range(0, mirror, side):
        yield left, left
    for left in [*range(0, mirror, side), *range(mirror, width, wide)]:
        for top in range(0, min(left, height), side) if left < mirror else range(0, height, side):
            yield top, left
