"""Recall@K, R-precision and MAP@R, per query and averaged (the paper's Section VI-B; Musgrave et al.)."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from iaa.retrieval.cosine import full_precision, points
from iaa.retrieval.counting import Counter
from iaa.retrieval.full_sort import IGNORED, full_rows, parts_of
from iaa.retrieval.input_checks import as_labels, as_vectors, check_sets
from iaa.retrieval.knn import without
from iaa.retrieval.positives import Items, Positives, count_positives, same_label

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
    index_recall: float | None = None
    """Share of the true nearest that an approximate index found, on a sample; None if exact."""

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


def score(
    z: Tensor,
    labels: Tensor,
    *,
    gallery: tuple[Tensor, Tensor] | None = None,
    ks: Sequence[int] = (1, 2, 4, 8),
    distance: str = "cosine",
    index: str | None = None,
) -> dict[str, float]:
    """Recall@K, R-precision and MAP@R in percent, leave-one-out or against a ``gallery`` of (z, labels).

    Exact by default; ``index`` ("flat", "hnsw", "ivf") searches with faiss instead.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> score(z, torch.tensor([7, 7, 9, 9]), ks=(1,))
    {'R@1': 100.0, 'RP': 100.0, 'MAP@R': 100.0}
    """
    if not ks:
        raise ValueError("ks must name at least one K of R@K, got none")
    result = score_queries(z, labels, gallery=gallery, depth=max(ks), distance=distance, index=index)
    counted = result.counted
    if not bool(counted.all()):
        warnings.warn(
            f"{int((~counted).sum())} of {len(counted)} queries have no positive: left out of the means",
            stacklevel=2,
        )
    return {name: float(value[counted].mean()) for name, value in result.values(ks).items()}


def score_queries(
    z: Tensor,
    labels: Tensor,
    *,
    gallery: tuple[Tensor, Tensor] | None = None,
    groups: tuple[Tensor, Tensor] | None = None,
    depth: int = 1,
    distance: str = "cosine",
    index: str | None = None,
    budget: int = BUDGET,
    tick: Callable[[float], None] = lambda done: None,
) -> PerQuery:
    """Metrics of every query against the gallery, or against all others (leave-one-out) when there is none.

    ``groups`` numbers the queries and the gallery items: items of a query's own group are ignored (the image
    itself, frames of one sequence). ``depth`` is the largest K of R@K wanted. Exact for any number of
    classes; where they are too large for counting (or for ``budget``) whole rows are sorted, which is slower.
    """
    z = as_vectors(z)
    labels = as_labels(labels, len(z)).to(z.device)
    if gallery is not None:
        target = as_vectors(gallery[0], "gallery").to(z.device)
        gallery = target, as_labels(gallery[1], len(target), "gallery labels").to(z.device)
    check_sets(z, labels, gallery, [depth])
    target, target_labels = (z, labels) if gallery is None else gallery
    numbers: tuple[Tensor | None, Tensor | None] = (None, None)
    if groups is not None:
        numbers = (
            as_labels(groups[0], len(z), "groups").to(z.device),
            as_labels(groups[1], len(target), "groups of the gallery").to(z.device),
        )
    ready = points(z, distance=distance, other=None if gallery is None else target)
    query = Items(ready[0], labels, numbers[0])
    others = query if gallery is None else Items(ready[1], target_labels, numbers[1])
    count = count_positives(query, others)
    if not bool((count > 0).any()):
        raise ValueError(
            "no query has a positive: every label occurs once, or the gallery shares none with the queries"
        )
    nothing = torch.zeros(len(z), dtype=torch.float64, device=z.device)
    result = PerQuery(count, torch.full_like(count, depth + 1), nothing, nothing.clone(), depth)
    if index is not None:
        return replace(result, index_recall=_by_index(result, query, others, index, distance))
    with full_precision(z.device):
        countable = _countable(count, len(others), budget)
        hard = (count > 0) & ~countable
        if bool(countable.any()):
            hard |= _by_counting(result, query, others, countable, tick)
        _by_sorting(result, query, others, hard.nonzero()[:, 0], budget, tick)
    return result


def _by_index(result: PerQuery, query: Items, gallery: Items, kind: str, distance: str) -> float | None:
    """Fill in from the lists of a faiss index, as long as the largest K and R; returns its recall."""
    from iaa.retrieval.index import build, measured_recall, search

    target = gallery.points.raw
    built = build(target, kind=kind, distance=distance)
    k = min(len(target), max(result.depth, int(result.positives.max())))
    wider = min(len(target), k + _most_ignored(query, gallery))
    for rows in result.counted.nonzero()[:, 0].split(8192):
        near = search(built, query.points.raw[rows], k=wider, distance=distance)
        ignored = query.ignores(rows[:, None], gallery, near.index.to(rows.device))
        index = without(near, ignored.to(near.index.device), k).index.to(rows.device)
        _fill(result, rows, (gallery.labels[index] == query.labels[rows][:, None]) & (index >= 0))
    if kind == "flat":
        return None
    return measured_recall(built, target, k=min(10, len(target) - 1), distance=distance, sample=200)


def _most_ignored(query: Items, gallery: Items) -> int:
    """The most gallery items that any query ignores."""
    if query.groups is None or gallery.groups is None:
        return int(query is gallery)
    return int(same_label(query.groups, gallery.groups)[2].max())


def _countable(count: Tensor, gallery_size: int, budget: int) -> Tensor:
    """Queries whose positives are few, compared with the gallery and, all together, with the budget."""
    smallest_first, order = count.sort()
    fits = smallest_first.cumsum(0) <= budget // 96
    fits = torch.zeros_like(fits).scatter_(0, order, fits)
    return (count > 0) & fits & (count <= max(64, gallery_size // 16))


def _by_counting(
    result: PerQuery, query: Items, gallery: Items, countable: Tensor, tick: Callable[[float], None]
) -> Tensor:
    """Fill in the countable queries, except those that turn out hard (returned)."""
    seed = torch.Generator().manual_seed(0)
    columns = torch.randperm(len(gallery), generator=seed).to(countable.device)
    rows = columns if query is gallery else torch.arange(len(query), device=countable.device)
    positives = Positives.find(query, gallery, rows, countable[rows])
    counter = Counter(positives, query, gallery, rows, columns, depth=result.depth)
    counter.run(tick)
    owner = torch.repeat_interleave(positives.start.diff())
    rank, position = positives.ranks()
    inside = rank <= result.positives[rows][owner]
    share = inside / result.positives[rows][owner].double()
    queries = rows[owner]
    result.r_precision.index_add_(0, queries, share)
    result.map_at_r.index_add_(0, queries, share * position / rank)
    result.first[queries[position == 1]] = rank[position == 1].clamp(max=result.depth + 1)
    return torch.zeros_like(counter.hard).scatter_(0, rows, counter.hard)


def _by_sorting(
    result: PerQuery,
    query: Items,
    gallery: Items,
    rows: Tensor,
    budget: int,
    tick: Callable[[float], None],
) -> None:
    """Fill in these queries from their whole sorted rows."""
    every = torch.arange(len(gallery), device=rows.device)
    for part in parts_of(rows, gallery.points, budget):
        ignored = query.ignores(part[:, None], gallery, every[None])
        key, order = full_rows(query.points, gallery.points, part, ignored)
        _fill(result, part, (gallery.labels[order] == query.labels[part][:, None]) & (key != IGNORED))
        tick(float((rows <= part[-1]).double().mean()))


def _fill(result: PerQuery, rows: Tensor, hit: Bool[Tensor, "b k"]) -> None:
    """Metrics from whether each neighbour, nearest first, is a positive."""
    total = result.positives[rows]
    rank = torch.arange(1, hit.shape[1] + 1, device=hit.device)
    hits = hit.cumsum(1)
    inside = hit & (rank <= total[:, None])
    result.r_precision[rows] = inside.sum(1) / total.double()
    result.map_at_r[rows] = torch.where(inside, hits / rank.double(), 0.0).sum(1) / total
    first = torch.where(hit.any(1), hit.int().argmax(1) + 1, result.depth + 1)
    result.first[rows] = first.clamp(max=result.depth + 1)
