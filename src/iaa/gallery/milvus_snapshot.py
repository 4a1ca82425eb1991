"""A gallery in Milvus at one moment: searched by Milvus, its recall measured against exact search."""

import functools
import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from iaa.gallery.milvus_client import PAGE, MilvusCollection
from iaa.gallery.store import Rows, search_within
from iaa.provenance import fingerprint
from iaa.retrieval.knn import Neighbors, knn

SAMPLE = 100
"""Queries that recall is measured with."""


@dataclass(frozen=True, eq=False)
class MilvusSnapshot:
    """Ids, classes and stamps in memory, vectors in Milvus.

    Rows that another process adds later are not returned; those it deletes are missing.
    """

    collection: MilvusCollection
    rows: Rows
    model_key: str
    recall: float | None = None

    @property
    def dim(self) -> int:
        """Numbers of a vector."""
        return self.collection.dim

    @functools.cached_property
    def keys(self) -> list[str]:
        """The key of every row."""
        return [row_key(self.model_key, id) for id in self.rows.ids]

    @functools.cached_property
    def _row_of(self) -> dict[str, int]:
        return {key: row for row, key in enumerate(self.keys)}

    def vectors(self, rows: Int64[Tensor, " m"]) -> Float[Tensor, "m d"]:
        """The vectors of some rows, in that order."""
        return self.collection.vectors([self.keys[row] for row in rows.tolist()])

    def search(
        self,
        query: Float[Tensor, "q d"],
        *,
        top: int,
        exclude: Int64[Tensor, "q m"] | None = None,
        within: Int64[Tensor, " w"] | None = None,
        label: str | None = None,
    ) -> Neighbors:
        """See ``Snapshot.search``; Milvus filters by class, any other choice of rows is searched here."""
        if top < 1:
            raise ValueError(f"top must be 1 or more, got {top}")
        if within is not None and label is None:
            return search_within(self, query, within, top=top, exclude=exclude)
        condition = f'model == "{self.model_key}"'
        if label is not None:
            condition += f' and class_key == "{class_key(label)}"'
        width = 0 if exclude is None else exclude.shape[1]
        limit = min(top + width, len(self.rows))
        if limit > PAGE:
            raise ValueError(f"top must be {PAGE - width:,} or less with Milvus, got {top:,}")
        index = torch.full((len(query), min(top, len(self.rows))), -1)
        value = torch.full(index.shape, -torch.inf)
        for number, hits in enumerate(self.collection.search(query, limit, condition)):
            dropped = {-1} if exclude is None else {-1, *exclude[number].tolist()}
            pairs = ((self._row_of.get(key, -1), cosine) for key, cosine in hits)
            for rank, (row, cosine) in enumerate([pair for pair in pairs if pair[0] not in dropped][:top]):
                index[number, rank], value[number, rank] = row, cosine
        return Neighbors(index, value)

    def index(self) -> dict[str, Any]:
        """Kind of the index, and its recall when the gallery was last written."""
        about: dict[str, Any] = {"kind": self.collection.index_type}
        return about if self.recall is None else about | {"recall_at_10": self.recall}

    def measure_recall(self, *, top: int = 10, sample: int = SAMPLE) -> float | None:
        """Share of the true nearest that the index finds, for a seeded sample; None for one row alone.

        The exact search reads all vectors once, in chunks.
        """
        size = len(self.rows)
        if size < 2:
            return None
        top = min(top, size - 1)
        rows = torch.randperm(size, generator=torch.Generator().manual_seed(0))[:sample]
        query = self.vectors(rows)
        best = Neighbors(torch.full((len(rows), 1), -1), torch.full((len(rows), 1), -torch.inf))
        for chunk in torch.arange(size).split(PAGE):
            near = knn(query, self.vectors(chunk), k=min(top + 1, len(chunk)))
            near_rows = chunk[near.index]
            own = near_rows == rows[:, None]
            values = torch.cat([best.value, near.value.masked_fill(own, -torch.inf)], 1)
            order = values.topk(min(top, values.shape[1]), dim=1)
            best = Neighbors(torch.cat([best.index, near_rows], 1).gather(1, order.indices), order.values)
        approximate = self.search(query, top=top, exclude=rows[:, None]).index
        return float((best.index[:, :, None] == approximate[:, None, :]).any(2).double().mean())


def model_key(identity: dict[str, Any]) -> str:
    """A short hash of a model's identity."""
    return fingerprint(identity)[:16]


def class_key(name: str) -> str:
    """A class in a filter: a hash, as names may hold any character."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def row_key(model: str, id: str) -> str:
    """The primary key of a row."""
    return hashlib.sha256(f"{model} {id}".encode()).hexdigest()[:40]
