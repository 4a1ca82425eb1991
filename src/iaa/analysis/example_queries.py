"""What single queries retrieve: typical queries and the worst (Fig. 13)."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from iaa.retrieval.evaluation import Evaluation
from iaa.retrieval.ranking import rank_within_class

CANDIDATES = 4096
"""Most queries among which the worst are searched."""


@dataclass(frozen=True)
class Retrieved:
    """Queries, as rows of the embeddings, and the gallery rows nearest to them, nearest first."""

    query: Int64[Tensor, " q"]
    nearest: Int64[Tensor, "q k"]
    similarity: Float[Tensor, "q k"]
    right: Bool[Tensor, "q k"]
    """Whether a gallery row is of the query's class."""


def retrieve(evaluation: Evaluation, query: Int64[Tensor, " q"], *, count: int = 5) -> Retrieved:
    """The gallery rows nearest to some queries; a row never retrieves itself."""
    labels = evaluation.data.labels
    near = evaluation.nearest(query, count=count)
    return Retrieved(query, near.index, near.value, labels[near.index] == labels[query][:, None])


def typical(evaluation: Evaluation, count: int, *, seed: int = 0) -> Int64[Tensor, " q"]:
    """Queries drawn at random, of different classes as long as there are any."""
    queries = evaluation.query[evaluation.result.counted]
    shuffled = queries[torch.randperm(len(queries), generator=torch.Generator().manual_seed(seed))]
    return from_different_classes(shuffled, evaluation.data.labels, count)


def class_scores(evaluation: Evaluation, metric: str = "MAP@R") -> dict[int, float]:
    """The mean of a metric over the queries of each class, in percent."""
    labels, member = evaluation.classes.unique(return_inverse=True)
    sums = torch.zeros(len(labels), dtype=torch.float64).index_add(0, member, evaluation.values()[metric])
    return dict(zip(labels.tolist(), (sums / member.bincount()).tolist(), strict=True))


def worst(evaluation: Evaluation, count: int, *, seed: int = 0) -> Int64[Tensor, " q"]:
    """Queries of lowest MAP@R, of different classes; among equals those most similar to a wrong image."""
    counted = evaluation.result.counted
    queries, scores = evaluation.query[counted], evaluation.result.map_at_r[counted]
    candidates = torch.randperm(len(queries), generator=torch.Generator().manual_seed(seed))
    candidates = candidates[scores[candidates].argsort(stable=True)][:CANDIDATES]
    nearest = retrieve(evaluation, queries[candidates], count=1)
    wrong = nearest.similarity[:, 0] * (1 if evaluation.distance == "cosine" else -1)
    order = wrong.argsort(descending=True, stable=True)
    order = order[scores[candidates][order].argsort(stable=True)]
    return from_different_classes(queries[candidates[order]], evaluation.data.labels, count)


def from_different_classes(
    rows: Int64[Tensor, " q"], labels: Int64[Tensor, " n"], count: int
) -> Int64[Tensor, " k"]:
    """The first ``count`` rows, one per class; further rows of a class only where classes run out."""
    repeated = rank_within_class(labels[rows]) > 0
    return rows[repeated.to(torch.uint8).argsort(stable=True)][:count]
