"""What single queries are answered: typical ones and the worst (Fig. 13)."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from iaa.retrieval.evaluation import Evaluation

CANDIDATES = 4096
"""Of how many queries at most the worst are looked for."""


@dataclass(frozen=True)
class Answers:
    """Queries, as rows of the embeddings, and what is nearest to them, nearest first."""

    query: Int64[Tensor, " q"]
    nearest: Int64[Tensor, "q k"]
    similarity: Float[Tensor, "q k"]
    right: Bool[Tensor, "q k"]


def answer(found: Evaluation, query: Int64[Tensor, " q"], *, count: int = 5) -> Answers:
    """The nearest of the gallery to some rows; a row is no answer to itself."""
    labels = found.data.labels
    near = found.nearest(query, count=count)
    return Answers(query, near.index, near.value, labels[near.index] == labels[query][:, None])


def typical(found: Evaluation, count: int, *, seed: int = 0) -> Int64[Tensor, " q"]:
    """Queries drawn at random, no two of a class while there are classes: nobody has chosen them."""
    asked = found.query[found.result.counted]
    shuffled = asked[torch.randperm(len(asked), generator=torch.Generator().manual_seed(seed))]
    return apart(shuffled, found.data.labels, count)


def class_scores(found: Evaluation, metric: str = "MAP@R") -> dict[int, float]:
    """The mean of a metric over the queries of each class, in percent."""
    labels, member = found.classes.unique(return_inverse=True)
    sums = torch.zeros(len(labels), dtype=torch.float64).index_add(0, member, found.values()[metric])
    return dict(zip(labels.tolist(), (sums / member.bincount()).tolist(), strict=True))


def worst(found: Evaluation, count: int, *, seed: int = 0) -> Int64[Tensor, " q"]:
    """Queries of lowest MAP@R, of different classes; among equals those most similar to a wrong answer."""
    counted = found.result.counted
    asked, scores = found.query[counted], found.result.map_at_r[counted]
    some = torch.randperm(len(asked), generator=torch.Generator().manual_seed(seed))
    some = some[scores[some].argsort(stable=True)][:CANDIDATES]
    near = answer(found, asked[some], count=1)
    wrong = near.similarity[:, 0] * (1 if found.distance == "cosine" else -1)
    order = wrong.argsort(descending=True, stable=True)
    order = order[scores[some][order].argsort(stable=True)]
    return apart(asked[some[order]], found.data.labels, count)


def apart(rows: Int64[Tensor, " q"], labels: Int64[Tensor, " n"], count: int) -> Int64[Tensor, " k"]:
    """``count`` rows in their order: the first of each class, and others only where classes run out."""
    _, number = labels[rows].unique(return_inverse=True)
    by_class = number.argsort(stable=True)
    group = number[by_class]
    rank = torch.empty_like(by_class)
    rank[by_class] = torch.arange(len(rows)) - torch.searchsorted(group, group)
    return rows[(rank > 0).to(torch.uint8).argsort(stable=True)][:count]
