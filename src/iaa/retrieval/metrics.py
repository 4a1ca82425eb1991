"""Recall@K, R-precision and MAP@R, per query and averaged (Section VI-B of the paper; Musgrave et al., 2020)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from iaa.retrieval.counting import Counter
from iaa.retrieval.positives import Positives, same_label
from iaa.retrieval.rows import full_rows, rows_at_once
from iaa.retrieval.similarity import Points, full_precision, points

BUDGET = 256 * 2**20
"""Bytes that scoring may use besides the embeddings themselves."""


@dataclass(frozen=True)
class PerQuery:
    """What each query got. Queries without a positive have ``positives`` 0 and count for nothing."""

    positives: Int64[Tensor, " q"]
    first: Int64[Tensor, " q"]
    """Rank of the best positive, from 1; exact up to ``depth``, and some larger number beyond."""
    r_precision: Float64[Tensor, " q"]
    map_at_r: Float64[Tensor, " q"]
    depth: int

    @property
    def counted(self) -> Bool[Tensor, " q"]:
        """Queries that have a positive: the ones averaged."""
        return self.positives > 0

    def recall(self, k: int) -> Float64[Tensor, " q"]:
        """Whether a positive is among the ``k`` nearest: 1 or 0 (the paper's R@K)."""
        if not 1 <= k <= self.depth:
            raise ValueError(f"k must lie in [1, {self.depth}], the depth scored, got {k}")
        return ((self.first <= k) & self.counted).double()

    def values(self, ks: Sequence[int]) -> dict[str, Float64[Tensor, " q"]]:
        """Every metric's per-query values, in percent, by name."""
        named = {f"R@{k}": self.recall(k) for k in ks}
        named |= {"RP": self.r_precision, "MAP@R": self.map_at_r}
        return {name: 100 * value for name, value in named.items()}


def score_queries(
    z: Float[Tensor, "q d"],
    labels: Int64[Tensor, " q"],
    *,
    gallery: tuple[Float[Tensor, "n d"], Int64[Tensor, " n"]] | None = None,
    depth: int = 1,
    distance: str = "cosine",
    budget: int = BUDGET,
    tick: Callable[[float], None] = lambda done: None,
) -> PerQuery:
    """Metrics of every query against the gallery, or against all others (leave-one-out) when there is none.

    ``depth`` is the largest K of R@K wanted. Exact for any number of classes; classes too large for counting
    (or for ``budget``) have their rows sorted whole, which is slower and needs no more memory.
    """
    query, target = points(z, distance=distance, other=None if gallery is None else gallery[0])
    target_labels = labels if gallery is None else gallery[1]
    count = same_label(labels, target_labels)[2] - (1 if gallery is None else 0)
    result = PerQuery(
        count, torch.full_like(count, depth + 1), torch.zeros_like(count).double(), torch.zeros_like(count).double(), depth
    )
    with full_precision(z.device):
        countable = _countable(count, len(target), budget)
        hard = (count > 0) & ~countable
        if bool(countable.any()):
            hard |= _by_counting(result, query, target, labels, target_labels, countable, tick)
        _by_sorting(result, query, target, labels, target_labels, hard.nonzero()[:, 0], budget)
    return result


def _countable(count: Tensor, gallery_size: int, budget: int) -> Tensor:
    """Queries whose positives are few enough: beside the gallery, and all together beside the budget."""
    smallest_first, order = count.sort()
    fits = smallest_first.cumsum(0) <= budget // 96
    fits = torch.zeros_like(fits).scatter_(0, order, fits)
    return (count > 0) & fits & (count <= max(64, gallery_size // 16))


def _by_counting(
    result: PerQuery,
    query: Points,
    gallery: Points,
    labels: Tensor,
    gallery_labels: Tensor,
    countable: Tensor,
    tick: Callable[[float], None],
) -> Tensor:
    """Fill in the countable queries, less those found hard (returned)."""
    seed = torch.Generator().manual_seed(0)
    columns = torch.randperm(len(gallery), generator=seed).to(gallery.device)
    rows = columns if query is gallery else torch.arange(len(query), device=query.device)
    found = Positives.find(query, gallery, rows, labels[rows], gallery_labels, countable[rows])
    counter = Counter(
        found, query, gallery, rows, columns, labels[rows], gallery_labels[columns], depth=result.depth
    )
    counter.run(tick)
    owner = torch.repeat_interleave(found.start.diff())
    rank, place = found.ranks()
    inside = rank <= result.positives[rows][owner]
    share = inside / result.positives[rows][owner].double()
    queries = rows[owner]
    result.r_precision.index_add_(0, queries, share)
    result.map_at_r.index_add_(0, queries, share * place / rank)
    result.first[queries[place == 1]] = rank[place == 1].clamp(max=result.depth + 1)
    return torch.zeros_like(counter.hard).scatter_(0, rows, counter.hard)


def _by_sorting(
    result: PerQuery, query: Points, gallery: Points, labels: Tensor, gallery_labels: Tensor, rows: Tensor, budget: int
) -> None:
    """Fill in these queries from their whole sorted rows."""
    for part in rows.split(rows_at_once(len(gallery), budget)):
        _, order = full_rows(query, gallery, part)
        hit = gallery_labels[order] == labels[part][:, None]
        _fill(result, part, hit)


def _fill(result: PerQuery, rows: Tensor, hit: Bool[Tensor, "b k"]) -> None:
    """Metrics from whether each neighbour, nearest first, is a positive."""
    total = result.positives[rows]
    rank = torch.arange(1, hit.shape[1] + 1, device=hit.device)
    found = hit.cumsum(1)
    inside = hit & (rank <= total[:, None])
    result.r_precision[rows] = inside.sum(1) / total.double()
    result.map_at_r[rows] = torch.where(inside, found / rank.double(), 0.0).sum(1) / total
    first = hit.int().argmax(1) + 1
    result.first[rows] = torch.where(hit.any(1), first, hit.shape[1] + 1)
