"""An embeddings file scored: who asks whom, means with intervals, two files compared, worst classes."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.knn import Neighbors, knn, without
from iaa.retrieval.metrics import PerQuery, score_queries
from iaa.retrieval.refinement import Refinement, score_refined
from iaa.retrieval.significance import Difference, intervals, paired, sampled_mean


def _silent(done: float) -> None:
    pass


@dataclass(frozen=True)
class Evaluation:
    """Per-query results of one file, and which of its rows asked and answered."""

    data: Embeddings
    query: Int64[Tensor, " q"]
    gallery: Int64[Tensor, " n"] | None
    """Row numbers; None means leave-one-out among the queries. A row in both never answers itself."""
    result: PerQuery
    ks: tuple[int, ...]
    distance: str

    def __repr__(self) -> str:
        """On one line: the scores, not every query."""
        scores = ", ".join(f"{name} {float(value.mean()):.1f}" for name, value in self.values().items())
        return f"Evaluation({scores}; {len(self.query):,} queries)"

    @property
    def without_positive(self) -> int:
        """Queries that no gallery item can answer; they are left out of every mean."""
        return int((~self.result.counted).sum())

    @property
    def classes(self) -> Int64[Tensor, " c"]:
        """Label of each query that counts."""
        return self.data.labels[self.query][self.result.counted]

    def values(self) -> dict[str, Tensor]:
        """Per-query percent of every metric, for the queries that count."""
        return {name: value[self.result.counted] for name, value in self.result.values(self.ks).items()}

    def index_error(self) -> dict[str, dict[str, float]] | None:
        """What the scores of an approximate index are off by, in percent, with 95 % intervals; None if exact.

        From a sample of the queries that was scored exactly too: ``mean`` is approximate less exact.
        """
        if self.result.exact is None or self.result.sample is None:
            return None
        exact, approximate = (result.values(self.ks) for result in (self.result.exact, self.result))
        off = torch.stack([approximate[name][self.result.sample] - exact[name] for name in exact])
        means = zip(exact, sampled_mean(off.cpu()).tolist(), strict=True)
        return {name: {"mean": mean, "low": low, "high": high} for name, (mean, low, high) in means}

    def nearest(self, rows: Int64[Tensor, " r"], *, count: int) -> Neighbors:
        """The ``count`` nearest gallery rows (fewer if there are no more) that may answer these rows."""
        gallery = self.query if self.gallery is None else self.gallery
        groups = _groups(self.data)
        ignored = int(groups[gallery].bincount(minlength=int(groups.max()) + 1)[groups[rows]].max())
        count = min(count, len(gallery) - ignored)
        near = knn(self.data.z[rows], self.data.z[gallery], k=count + ignored, distance=self.distance)
        near = Neighbors(gallery[near.index], near.value)
        return without(near, groups[near.index] == groups[rows][:, None], count)

    def summary(self) -> dict[str, dict[str, Any]]:
        """Mean and 95 % bootstrap intervals, over queries and over classes, of every metric."""
        values = self.values()
        stacked = torch.stack(list(values.values()))
        spans = zip(intervals(stacked).tolist(), intervals(stacked, self.classes).tolist(), strict=True)
        return {
            name: {"value": float(value.mean()), "over_queries": queries, "over_classes": classes}
            for (name, value), (queries, classes) in zip(values.items(), spans, strict=True)
        }


def evaluate(
    data: Embeddings,
    *,
    ks: Sequence[int] = (1, 2, 4, 8),
    split: str | None = "test",
    distance: str = "cosine",
    index: str | None = None,
    expand: int = 0,
    augment_gallery: int = 0,
    rerank: bool = False,
    tick: Callable[[float], None] = _silent,
) -> Evaluation:
    """Score the rows of a split: leave-one-out, or by the roles in the file.

    ``expand`` adds to every query its nearest of the gallery (query expansion), ``augment_gallery`` to every
    gallery image its nearest of the others (database augmentation), and ``rerank`` puts the nearest of each
    query into the order of k-reciprocal re-ranking.
    """
    refinement = Refinement(expand, augment_gallery, rerank)
    rows = _rows(data, split)
    roles = [data.role[row] for row in rows.tolist()]
    if set(roles) == {"both"}:
        return _evaluate(data, rows, None, ks, distance, index, tick, refinement)
    asks, answers = (torch.tensor([role in (own, "both") for role in roles]) for own in ("query", "gallery"))
    if not bool(asks.any()) or not bool(answers.any()):
        raise ValueError(f"there must be queries and a gallery, but every role is {roles[0]!r}")
    return _evaluate(data, rows[asks], rows[answers], ks, distance, index, tick, refinement)


def draw_galleries(
    data: Embeddings,
    draws: int,
    *,
    ks: Sequence[int] = (1, 5),
    split: str | None = "test",
    distance: str = "cosine",
    seed: int = 0,
    tick: Callable[[float], None] = _silent,
) -> dict[str, dict[str, float]]:
    """VehicleID's protocol: a random image per class is the gallery, the rest ask; mean and spread."""
    rows = _rows(data, split)
    generator = torch.Generator().manual_seed(seed)
    means: dict[str, list[float]] = {}
    for draw in range(draws):
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        labels = data.labels[shuffled].tolist()
        last = {label: position for position, label in enumerate(labels)}
        chosen = torch.zeros(len(rows), dtype=torch.bool)
        chosen[list(last.values())] = True
        asks, answers = shuffled[~chosen].sort().values, shuffled[chosen].sort().values
        if not len(asks):
            raise ValueError(
                "every class has a single image: the gallery takes them all and no query is left"
            )
        drawn = _evaluate(data, asks, answers, ks, distance, None, _silent)
        tick((draw + 1) / draws)
        for name, value in drawn.values().items():
            means.setdefault(name, []).append(float(value.mean()))
    stacked = {name: torch.tensor(values, dtype=torch.float64) for name, values in means.items()}
    return {
        name: {"value": float(values.mean()), "spread": float(values.std()) if draws > 1 else 0.0}
        for name, values in stacked.items()
    }


def compare(before: Evaluation, after: Evaluation) -> dict[str, Difference]:
    """Is ``after`` better than ``before`` on the same queries? Every metric's paired difference."""
    both = before, after
    ids = [[side.data.ids[row] for row in side.query.tolist()] for side in both]
    if set(ids[0]) != set(ids[1]):  # names may start from different folders
        roots = [side.data.meta.get("root") or "" for side in both]
        ids = [
            [os.path.abspath(os.path.join(root, name)) for name in names]
            for root, names in zip(roots, ids, strict=True)
        ]
    positions = {name: position for position, name in enumerate(ids[0])}
    if len(positions) != len(ids[0]) or sorted(ids[0]) != sorted(ids[1]):
        missing = next(iter(set(ids[1]) ^ set(ids[0])), None)
        reason = f"only one of them has {missing!r}" if missing else "an id occurs twice"
        raise ValueError(f"the two files must hold the same queries, each id once: {reason}")
    order = torch.tensor([positions[name] for name in ids[1]])
    if not torch.equal(before.data.labels[before.query][order], after.data.labels[after.query]):
        raise ValueError("the two files give different labels to the same ids")
    if not torch.equal(before.result.positives[order], after.result.positives):
        raise ValueError(
            "the two files have different galleries: the same query has other numbers of positives"
        )
    old, new = before.result.values(before.ks), after.result.values(after.ks)
    counted = after.result.counted
    stacked = (
        torch.stack([old[name][order][counted] for name in new]),
        torch.stack([v[counted] for v in new.values()]),
    )
    return dict(zip(new, paired(*stacked, after.classes), strict=True))


def worst_classes(evaluation: Evaluation, count: int = 10) -> list[dict[str, Any]]:
    """The classes of lowest MAP@R, each with its worst query and that query's nearest neighbour."""
    data, names = evaluation.data, evaluation.data.class_names or {}
    values = evaluation.values()
    labels, member = evaluation.classes.unique(return_inverse=True)
    sizes = member.bincount().double()
    means = {n: torch.zeros(len(labels)).double().index_add(0, member, v) / sizes for n, v in values.items()}
    worst = means["MAP@R"].argsort(stable=True)[:count].tolist()
    queries = evaluation.query[evaluation.result.counted]
    examples = []
    for number in worst:
        own = (member == number).nonzero()[:, 0]
        examples.append(int(queries[own[values["MAP@R"][own].argmin()]]))
    nearest = evaluation.nearest(torch.tensor(examples), count=1).index[:, 0].tolist()

    def name(label: Tensor) -> str:
        return names.get(int(label), str(int(label)))

    return [
        {
            "label": int(labels[number]),
            "class": name(labels[number]),
            "queries": int(sizes[number]),
            **{metric: float(mean[number]) for metric, mean in means.items()},
            "example": data.ids[example],
            "nearest": data.ids[near],
            "nearest_class": name(data.labels[near]),
        }
        for number, example, near in zip(worst, examples, nearest, strict=True)
    ]


def _groups(data: Embeddings) -> Tensor:
    """A number per row; rows of one number do not answer each other."""
    if not data.sequence:
        return torch.arange(len(data))
    numbers = {name: number for number, name in enumerate(dict.fromkeys(data.sequence))}
    groups = torch.tensor([numbers[name] for name in data.sequence])
    alone = torch.tensor([not name for name in data.sequence])  # no sequence: only the image itself
    return torch.where(alone, torch.arange(len(data)) + len(numbers), groups)


def _rows(data: Embeddings, split: str | None) -> Tensor:
    rows = data.where(split=split).nonzero()[:, 0]
    if not len(rows):
        have = ", ".join(sorted(set(data.split)))
        raise ValueError(f"no rows of split {split!r}: the file has {have}")
    return rows


def _evaluate(
    data: Embeddings,
    query: Tensor,
    gallery: Tensor | None,
    ks: Sequence[int],
    distance: str,
    index: str | None,
    tick: Callable[[float], None],
    refinement: Refinement | None = None,
) -> Evaluation:
    whole = len(query) == len(data)  # then without a copy
    target = None if gallery is None else (data.z[gallery], data.labels[gallery])
    groups = None
    if data.sequence or (gallery is not None and bool(torch.isin(query, gallery).any())):
        numbers = _groups(data)
        groups = numbers[query], numbers[query if gallery is None else gallery]
    score = partial(score_refined, refinement) if refinement else score_queries
    result = score(
        data.z if whole else data.z[query],
        data.labels[query],
        gallery=target,
        groups=groups,
        depth=max(ks, default=0),
        distance=distance,
        index=index,
        tick=tick,
    )
    return Evaluation(data, query, gallery, result, tuple(ks), distance)
