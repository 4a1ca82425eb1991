"""The search for neighbour classes (Eq. 11) and for the ends of each class's distances, block by block."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from iaa.errors import need
from iaa.method.gaussians import ClassStats

Search = Literal["exact", "approximate"]

BLOCK = 2**21
"""Scores held at a time (8 MiB in float32): small enough to be ranked while still in the cache."""
GROUP = 32
"""Lenders ranked together in a first step."""
SMALL = 256
"""Up to so many lenders, distances are plain differences, so that ties are exact."""
SAMPLE = 4096
"""Lenders among which the approximate search looks for the nearest and the farthest."""


@dataclass(frozen=True)
class Neighborhood:
    """Per class asked about: its nearest lenders, which of them are real, the ends of its distances."""

    near: Int[Tensor, "Q K"]
    valid: Bool[Tensor, "Q K"]
    mean_ends: Int[Tensor, "Q 2"]
    cov_ends: Int[Tensor, "Q 2"]


class _Ranking:
    """Lender vectors that rank themselves by distance to a block of queries.

    Ranks come in two steps, first the best of each group of lenders, then the best within the best groups:
    the k smallest numbers of a row lie in the k groups with the smallest minima.
    """

    def __init__(self, rows: Float[Tensor, "L D"], rows_per_block: int) -> None:
        self.count = len(rows)
        self.exact = self.count <= SMALL
        self.center = rows.mean(0) if not self.exact else torch.zeros_like(rows[0])  # less to cancel later
        padding = -self.count % GROUP
        self.rows = torch.cat([rows, rows[-1:].expand(padding, -1)]).sub_(self.center)
        self.half_norm = self.rows.square().sum(1) / 2
        self.buffer = rows.new_empty((rows_per_block, len(self.rows)))

    def farthest(self, query: Float[Tensor, "B D"]) -> Int[Tensor, "B"]:
        """The position of each query's farthest lender; leaves behind the scores that ``nearest`` ranks."""
        out = self.buffer[: len(query)]
        query = query - self.center
        if self.exact:
            out.copy_(torch.cdist(query, self.rows, compute_mode="donot_use_mm_for_euclid_dist"))
        else:
            torch.addmm(self.half_norm, query, self.rows.T, alpha=-1, out=out)
        groups = out.unflatten(1, (-1, GROUP))
        best = groups.amax(2).argmax(1, keepdim=True)
        inside = groups.gather(1, best[:, :, None].expand(-1, -1, GROUP)).squeeze(1)
        farthest: Tensor = best.squeeze(1) * GROUP + inside.argmax(1)
        out[:, self.count :] = torch.inf
        return farthest.clamp(max=self.count - 1)

    def nearest(self, own: Int[Tensor, "B"], kept: int) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
        """Scores and positions of the nearest lenders but ``own`` of the queries last given, in order."""
        scores = self.buffer[: len(own)]
        rows = (own >= 0).nonzero().flatten()
        scores[rows, own[rows]] = torch.inf
        if self.exact:
            values, positions = scores.sort(dim=1, stable=True)
            return values[:, :kept], positions[:, :kept]
        groups = scores.unflatten(1, (-1, GROUP))
        best = groups.amin(2).topk(min(kept, groups.shape[1]), dim=1, largest=False).indices
        inside = groups.gather(1, best[:, :, None].expand(-1, -1, GROUP)).flatten(1)
        values, positions = inside.topk(kept, dim=1, largest=False)
        positions = best.gather(1, positions // GROUP) * GROUP + positions % GROUP
        return values, positions.clamp(max=self.count - 1)  # padding is infinitely far, yet it has positions


@torch.no_grad()
def find_neighbors(
    stats: ClassStats,
    classes: Int[Tensor, "Q"],
    neighbors: int,
    *,
    search: Search = "exact",
    ends: bool = True,
) -> Neighborhood:
    """The nearest lenders of each class by squared mean (Eq. 11), and its nearest and farthest ones of all.

    Lenders are the other classes with two samples or more; K is capped by how many there are. Without
    ``ends`` the search does only half the work and the ends mean nothing.
    """
    lender = (stats.count >= 2).nonzero().flatten()
    kept = min(neighbors, len(lender))
    if kept == 0 or len(classes) == 0:
        near = classes.new_empty((len(classes), kept))
        blank = classes.new_zeros((len(classes), 2))
        return Neighborhood(near, near.bool(), blank, blank)
    own = _positions(lender, classes, len(stats.count))
    approximate = _approximate(stats, lender, classes, own, kept) if search == "approximate" else None
    if approximate is not None:
        ranked = torch.linspace(0, len(lender) - 1, min(SAMPLE, len(lender)), device=lender.device).long()
        lender = lender[ranked]
        own = _positions(lender, classes, len(stats.count))
    per_block = max(128, BLOCK // len(lender))
    means = _Ranking(stats.mean[lender].square_(), min(per_block, len(classes)))
    covs = _Ranking(stats.variance[lender], min(per_block, len(classes))) if ends else None
    parts = []
    for start in range(0, len(classes), per_block):
        rows = classes[start : start + per_block]
        own_positions = own[start : start + per_block]
        farthest = means.farthest(stats.mean[rows].square_())
        if approximate is None:
            values, near = means.nearest(own_positions, kept)  # Eq. 11
            near, valid = lender[near], values < torch.inf
        else:
            near, valid = (part[start : start + per_block] for part in approximate)
        mean_ends = cov_ends = torch.stack([near[:, 0], lender[farthest]], dim=1)
        if covs is not None:
            farthest = covs.farthest(stats.variance[rows])
            nearest = covs.nearest(own_positions, 1)[1][:, 0]
            cov_ends = torch.stack([lender[nearest], lender[farthest]], dim=1)
        parts.append((near, valid, mean_ends, cov_ends))
    return Neighborhood(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _positions(lender: Int[Tensor, "L"], classes: Int[Tensor, "Q"], num_classes: int) -> Int[Tensor, "Q"]:
    """Where each class stands among the lenders, -1 where it is none of them."""
    position = lender.new_full((num_classes,), -1)
    position[lender] = torch.arange(len(lender), device=lender.device)
    return position[classes]


def _approximate(
    stats: ClassStats, lender: Int[Tensor, "L"], classes: Int[Tensor, "Q"], own: Int[Tensor, "Q"], kept: int
) -> tuple[Int[Tensor, "Q K"], Bool[Tensor, "Q K"]]:
    """Neighbours from a navigable graph, whose work grows hardly faster than the number of classes."""
    faiss = need("faiss", extra="faiss")
    rows = stats.mean[lender].square_()
    rows.sub_(center := rows.mean(0))
    index = faiss.IndexHNSWFlat(
        rows.shape[1], 32
    )  # 16 links miss a third of the neighbours of 100,000 classes
    index.hnsw.efConstruction, index.hnsw.efSearch = 40, max(64, 2 * kept)
    index.add(rows.cpu().numpy())
    query = (stats.mean[classes].square_().sub_(center)).cpu().numpy()
    _, nearest = index.search(query, min(kept + 1, len(lender)))
    position = torch.from_numpy(nearest).to(lender.device)
    real = (position >= 0) & (position != own[:, None])
    front = real.int().argsort(dim=1, descending=True, stable=True)[:, :kept]  # the real ones, order kept
    position, real = position.gather(1, front), real.gather(1, front)
    return lender[position.clamp(min=0)], real
