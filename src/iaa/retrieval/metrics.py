"""Recall@K, R-precision and MAP@R, per query and averaged (the paper's Section VI-B; Musgrave et al.)."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from iaa.retrieval.cosine import Points, points
from iaa.retrieval.input_checks import as_labels, as_vectors, check_sets
from iaa.retrieval.knn import BUDGET, Neighbors, nearest, without

NO_POSITIVE = "no query has a positive: every label occurs once, or the gallery shares none with the queries"
_SAMPLE = 2000  # queries by which the error of an approximate index is told
_SHALLOW = 128  # neighbours looked at for R@K before the queries without a positive among them go deeper


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
    sample: Int64[Tensor, " s"] | None = None
    """Queries that were scored exactly as well, to tell the error of an approximate index; None if exact."""
    exact: "PerQuery | None" = None
    """The exact results of ``sample``."""

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
    itself, frames of one sequence). ``depth`` is the largest K of R@K wanted. Exact, with lists of ``budget``
    bytes at most whatever the number and the size of the classes, unless ``index`` names a faiss index.
    """
    z = as_vectors(z)
    labels = as_labels(labels, len(z)).to(z.device)
    if gallery is not None:
        target = as_vectors(gallery[0], "gallery").to(z.device)
        gallery = target, as_labels(gallery[1], len(target), "gallery labels").to(z.device)
    check_sets(z, labels, gallery, [depth])
    target, target_labels = (z, labels) if gallery is None else gallery
    if groups is not None:
        groups = (
            as_labels(groups[0], len(z), "groups").to(z.device),
            as_labels(groups[1], len(target), "groups of the gallery").to(z.device),
        )
    sets = points(z, distance=distance, other=None if gallery is None else target)
    asked = _Asked(*sets, labels, target_labels, groups)
    count = asked.positives()
    if not bool((count > 0).any()):
        raise ValueError(NO_POSITIVE)
    nothing = torch.zeros(len(z), dtype=torch.float64, device=z.device)
    result = PerQuery(count, torch.full_like(count, depth + 1), nothing, nothing.clone(), depth)
    if index is None:
        _exactly(result, asked, budget, tick)
        return result
    recall = _by_index(result, asked, index, distance, tick)
    if recall is None:
        return result
    sample, exact = _exact_sample(result, asked, distance, budget)
    return replace(result, index_recall=recall, sample=sample, exact=exact)


def score_lists(hit: Bool[Tensor, "q k"], positives: Int64[Tensor, " q"], *, depth: int = 1) -> PerQuery:
    """Metrics from whether each neighbour, nearest first, is a positive; as many as the largest K and R."""
    nothing = torch.zeros(len(hit), dtype=torch.float64, device=hit.device)
    result = PerQuery(positives, torch.full_like(positives, depth + 1), nothing, nothing.clone(), depth)
    rows = result.counted.nonzero()[:, 0]
    _fill(result, rows, hit[rows])
    return result


@dataclass(frozen=True, eq=False)
class _Asked:
    """Queries and gallery; one object for both means leave-one-out, where no query answers itself."""

    query: Points
    gallery: Points
    labels: Int64[Tensor, " q"]
    gallery_labels: Int64[Tensor, " n"]
    groups: tuple[Int64[Tensor, " q"], Int64[Tensor, " n"]] | None

    def positives(self) -> Int64[Tensor, " q"]:
        """How many gallery items share the label of each query, without those it ignores."""
        count = _occurrences(self.labels, self.gallery_labels)
        if self.groups is None:
            return count - (1 if self.query is self.gallery else 0)
        labels, groups = torch.cat([self.labels, self.gallery_labels]), torch.cat(self.groups)
        both = torch.stack([labels, groups]).unique(dim=1, return_inverse=True)[1]
        return count - _occurrences(both[: len(self.labels)], both[len(self.labels) :])

    def hits(self, rows: Int64[Tensor, " b"], index: Int64[Tensor, "b k"]) -> Bool[Tensor, "b k"]:
        """Whether each neighbour is a positive; -1 is no neighbour."""
        label = self.gallery_labels.index_select(0, index.reshape(-1).clamp(min=0)).view(index.shape)
        return (label == self.labels[rows][:, None]) & (index >= 0)


def _exactly(result: PerQuery, asked: _Asked, budget: int, tick: Callable[[float], None]) -> None:
    """Fill in from exact lists as long as R; queries that R@K needs longer ones for get them afterwards."""
    wanted = result.positives.maximum(result.positives.new_tensor(min(result.depth, _SHALLOW)))

    def take(rows: Tensor, near: Neighbors) -> None:
        _fill(result, rows, asked.hits(rows, near.index))

    def search(wanted: Tensor, tick: Callable[[float], None]) -> None:
        nearest(
            asked.query,
            asked.gallery,
            wanted,
            take,
            groups=asked.groups,
            hits=asked.hits,
            reach=result.positives,
            budget=budget,
            tick=tick,
        )

    search(wanted.where(result.counted, 0), tick)
    deeper = result.counted & (result.first > wanted) & (wanted < result.depth)
    if bool(deeper.any()):
        search(torch.where(deeper, result.depth, 0), lambda done: None)


def _by_index(
    result: PerQuery, asked: _Asked, kind: str, distance: str, tick: Callable[[float], None]
) -> float | None:
    """Fill in from the lists of a faiss index, as long as the largest K and R; returns its recall."""
    from iaa.retrieval.index import build, measured_recall, search

    target = asked.gallery.raw
    built = build(target, kind=kind, distance=distance)
    k = min(len(target), max(result.depth, int(result.positives.max())))
    most_ignored = int(asked.query is asked.gallery)
    if asked.groups is not None:
        most_ignored = int(_occurrences(*asked.groups).max())
    wider = min(len(target), k + most_ignored)
    for rows in result.counted.nonzero()[:, 0].split(8192):
        near = search(built, asked.query.raw[rows], k=wider, distance=distance)
        near = Neighbors(near.index.to(rows.device), near.value.to(rows.device))
        if asked.groups is not None:
            near = without(near, asked.groups[0][rows][:, None] == asked.groups[1][near.index], k)
        elif most_ignored:
            near = without(near, near.index == rows[:, None], k)
        _fill(result, rows, asked.hits(rows, near.index))
        tick(float(rows[-1] + 1) / len(result.positives))
    if kind == "flat":
        return None
    return measured_recall(built, target, k=min(10, len(target) - 1), distance=distance, sample=200)


def _exact_sample(result: PerQuery, asked: _Asked, distance: str, budget: int) -> tuple[Tensor, PerQuery]:
    """A seeded sample of the queries that count, scored exactly."""
    counted = result.counted.nonzero()[:, 0]
    order = torch.randperm(len(counted), generator=torch.Generator().manual_seed(0)).to(counted.device)
    rows = counted[order[:_SAMPLE]].sort().values
    groups = asked.groups
    if groups is None and asked.query is asked.gallery:
        itself = torch.arange(len(asked.labels), device=rows.device)
        groups = itself, itself
    exact = score_queries(
        asked.query.raw[rows],
        asked.labels[rows],
        gallery=(asked.gallery.raw, asked.gallery_labels),
        groups=None if groups is None else (groups[0][rows], groups[1]),
        depth=result.depth,
        distance=distance,
        budget=budget,
    )
    return rows, exact


def _occurrences(values: Int64[Tensor, " q"], among: Int64[Tensor, " n"]) -> Int64[Tensor, " q"]:
    """How often each value occurs among others."""
    among = among.sort().values
    return torch.searchsorted(among, values, right=True) - torch.searchsorted(among, values)


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
