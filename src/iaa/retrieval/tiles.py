"""Go through a similarity matrix tile by tile, each tile once even if it stands for two."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from iaa.retrieval.cosine import Points
from iaa.retrieval.threads import on_every_core

GROUP = 32
"""Similarities looked at together through their maximum; tiles are filled up to whole groups with -inf."""
SIDE = 2048
_KEPT = 2**23  # numbers (32 MiB) up to which a gallery is scaled once and kept
_FIRST = 64  # narrow stripes first: they raise thresholds cheaply


@dataclass(frozen=True)
class Tile:
    """Similarities of ``height`` queries from ``top`` on with ``width`` gallery items from ``left`` on."""

    similarity: Float[Tensor, "r c"]
    top: int
    left: int
    height: int
    width: int
    mirrored: bool
    """Leave-one-out, off the diagonal: read along the columns, it is the tile on the other side as well."""


def each_tile(
    query: Points,
    gallery: Points,
    rows: Int64[Tensor, " q"],
    columns: Int64[Tensor, " n"],
    look: Callable[[Tile], None],
    tick: Callable[[float], None],
    side: int = SIDE,
) -> None:
    """Call ``look`` on every tile, from as many threads as torch may use."""
    mirror = query is gallery
    jobs, lock = _jobs(len(rows), len(columns), side, mirror), Lock()
    whole, done = len(rows) * len(columns) / (2 if mirror else 1), 0

    shape = [min(side, -(-length // GROUP) * GROUP) for length in (len(rows), len(columns))]

    kept = gallery.block(columns) if columns.numel() * gallery.raw.shape[1] <= _KEPT else None

    def scaled(points: Points, order: Tensor, first: int, last: int) -> Tensor:
        if kept is not None and points is gallery:
            return kept[first:last]
        return points.block(order[first:last])

    def work() -> None:
        nonlocal done
        buffer, block, stripe = torch.empty(*shape, device=query.device), None, -1
        while True:
            with lock:
                job = next(jobs, None)
            if job is None:
                return
            top, bottom, left, right = job
            if left != stripe:
                block, stripe = scaled(gallery, columns, left, right), left
            assert block is not None
            upper = block if mirror and top == left else scaled(query, rows, top, bottom)
            similarity = _product(upper, block, buffer, euclidean=query.centre is not None)
            look(Tile(similarity, top, left, bottom - top, right - left, mirror and top > left))
            with lock:
                done += (bottom - top) * (right - left)
                tick(min(done / whole, 1.0))

    on_every_core(work, query.device)


def stripes(size: int, side: int) -> Iterator[tuple[int, int]]:
    """Edges that double from a narrow first stripe up to the width of a tile.

    >>> list(stripes(700, 256))
    [(0, 64), (64, 128), (128, 256), (256, 512), (512, 700)]
    """
    left, right = 0, min(_FIRST, side, size)
    while left < size:
        yield left, right
        left, right = right, min(right + min(right, side), size)


def _jobs(height: int, width: int, side: int, mirror: bool) -> Iterator[tuple[int, int, int, int]]:
    for left, right in stripes(width, side):
        if mirror:  # the square on the diagonal, then what lies below it
            yield left, right, left, right
        for top in range(right if mirror else 0, height, side):
            yield top, min(top + side, height), left, right


def _product(upper: Tensor, block: Tensor, buffer: Tensor, *, euclidean: bool) -> Tensor:
    """Similarities in the corner of the buffer."""
    height, width = len(upper), len(block)
    target = torch.mm(upper, block.T, out=buffer[:height, :width])
    if euclidean:
        target.sub_(block.square().sum(1) / 2).sub_(upper.square().sum(1)[:, None] / 2)
    tall, wide = (-(-length // GROUP) * GROUP for length in (height, width))
    buffer[height:tall, :wide] = -torch.inf
    buffer[:tall, width:wide] = -torch.inf
    return buffer[:tall, :wide]
