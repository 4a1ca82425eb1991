"""What can be done after embedding: query expansion, database augmentation, k-reciprocal re-ranking."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from iaa.method.checks import check_whole
from iaa.retrieval.input_checks import check_sets
from iaa.retrieval.knn import Neighbors
from iaa.retrieval.metrics import NO_POSITIVE, PerQuery, score_lists, score_queries
from iaa.retrieval.query_expansion import expand
from iaa.retrieval.reranking import rerank

DEPTH = 200
"""Neighbours that are re-ranked, if no more are asked for."""
POOL = 1000
"""Nearest rows of a gallery among which neighbours of neighbours are looked for in a search."""


@dataclass(frozen=True)
class Refinement:
    """Which of them; none by default, because they count on several gallery images of every class."""

    expand: int = 0
    """Neighbours that are added to a query (query expansion)."""
    augment_gallery: int = 0
    """Neighbours that are added to every image of the gallery (database augmentation)."""
    rerank: bool = False
    """Whether the nearest are put into another order: those first whose neighbours are also the query's."""

    def __post_init__(self) -> None:
        check_whole("expand", self.expand, least=0)
        check_whole("augment_gallery", self.augment_gallery, least=0)
        if self.rerank and (self.expand or self.augment_gallery):
            raise ValueError("rerank and expand or augment_gallery do not go together: choose one of them")

    def __bool__(self) -> bool:
        return bool(self.expand or self.augment_gallery or self.rerank)


def refined_search(
    refinement: Refinement,
    query: Float[Tensor, "q d"],
    search: Callable[[Tensor, int], Neighbors],
    vectors: Callable[[Tensor], Tensor],
    *,
    top: int,
) -> Neighbors:
    """The ``top`` nearest after a refinement, in any gallery that can be searched and asked for vectors.

    ``search`` gives the nearest rows of each query, -1 where there are no more; each query is refined alone.
    """
    if refinement.expand:
        pairs = zip(query, search(query, refinement.expand).index, strict=True)
        query = torch.cat([_expanded(one, vectors(rows[rows >= 0])) for one, rows in pairs])
    if not refinement.rerank:
        return search(query, top)
    near = search(query, max(POOL, top))
    index, value = near.index[:, :top].clone(), near.value[:, :top].clone()
    for number, rows in enumerate(near.index):
        pool = rows[rows >= 0]
        k = min(top, len(pool))
        if k:
            order = rerank(query[number : number + 1], vectors(pool), k=k, depth=max(DEPTH, k))
            index[number, :k], value[number, :k] = pool[order.index[0]], order.value[0]
    return Neighbors(index, value)


def _expanded(query: Float[Tensor, " d"], near: Float[Tensor, "k d"]) -> Float[Tensor, "1 d"]:
    return expand(query[None], near, neighbors=len(near)) if len(near) else query[None]


def score_refined(
    refinement: Refinement,
    z: Tensor,
    labels: Tensor,
    *,
    gallery: tuple[Tensor, Tensor] | None,
    groups: tuple[Tensor, Tensor] | None,
    depth: int,
    distance: str,
    index: str | None,
    tick: Callable[[float], None],
) -> PerQuery:
    """``score_queries`` after a refinement; leave-one-out, a query is expanded by the others."""
    if distance != "cosine":
        raise ValueError(f"expand, augment_gallery and rerank need distance cosine, got {distance}")
    if groups is not None:
        raise ValueError(
            "expand, augment_gallery and rerank take no sequences, and no queries that are in the gallery too"
        )
    if refinement.rerank:
        if index is not None:
            raise ValueError(f"rerank needs the exact neighbours: leave the index {index} out")
        check_sets(z, labels, gallery, [depth])
        scores = _score_reranked(z, labels, gallery, depth)
        tick(1.0)
        return scores
    if gallery is None and refinement.augment_gallery:
        raise ValueError(
            "augment_gallery needs queries apart from the gallery (by their role): among each other, images "
            "would move towards the very queries that look for them"
        )
    query = z
    if gallery is None:
        query = expand(z, neighbors=refinement.expand)
        rows = torch.arange(len(z))
        gallery, groups = (z, labels), (rows, rows)  # a query does not find the image that it was
    else:
        if refinement.augment_gallery:
            gallery = expand(gallery[0], neighbors=refinement.augment_gallery), gallery[1]
        if refinement.expand:
            query = expand(z, gallery[0], neighbors=refinement.expand)
    return score_queries(
        query, labels, gallery=gallery, groups=groups, depth=depth, distance=distance, index=index, tick=tick
    )


def _score_reranked(z: Tensor, labels: Tensor, gallery: tuple[Tensor, Tensor] | None, depth: int) -> PerQuery:
    """Metrics from re-ranked lists, as long as the largest K and R."""
    target, others = (None, labels) if gallery is None else gallery
    alone = int(gallery is None)
    names, count = others.unique(return_counts=True)
    at = torch.searchsorted(names, labels).clamp(max=len(names) - 1)
    positives = (count[at] - alone).where(names[at] == labels, 0)
    if not int(positives.max()):
        raise ValueError(NO_POSITIVE)
    k = min(max(depth, int(positives.max())), len(others) - alone)
    near = rerank(z, target, k=k, depth=max(k, DEPTH)).index
    return score_lists(others[near] == labels[:, None], positives, depth=depth)
