"""Results of a search: per query the most similar images, as a table, as a data frame, as plain data."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import torch
from torch import Tensor

from iaa.data.file_listing import images_under
from iaa.data.image_ref import image_path
from iaa.errors import need
from iaa.gallery.embedding import vectors_for
from iaa.inference import Model
from iaa.retrieval.formats import READERS
from iaa.retrieval.index import Index
from iaa.terminal import printable

if TYPE_CHECKING:
    from iaa.gallery.classifier import GalleryClassifier
    from iaa.gallery.gallery import Gallery


class Hit(NamedTuple):
    """One image of the gallery that was returned."""

    row: int
    """Its position in the gallery."""
    similarity: float
    """Cosine, 1 at most; after re-ranking another number, also 1 at most."""
    label: str
    id: str


@dataclass(frozen=True)
class SearchResults(Sequence[list[Hit]]):
    """A list of hits per query, nearest first; prints as a table."""

    hits: list[list[Hit]]
    queries: list[str]
    """A name per query: its path, or its number."""

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[list[Hit]]:
        return iter(self.hits)

    @overload
    def __getitem__(self, index: int) -> list[Hit]: ...
    @overload
    def __getitem__(self, index: slice) -> "SearchResults": ...
    def __getitem__(self, index: int | slice) -> "list[Hit] | SearchResults":
        if isinstance(index, slice):
            return SearchResults(self.hits[index], self.queries[index])
        return self.hits[index]

    def to_records(self) -> list[dict[str, Any]]:
        """A dictionary per hit: query, rank (from 1), similarity, label, id and row."""
        return [
            {
                "query": query,
                "rank": rank,
                "similarity": hit.similarity,
                "label": hit.label,
                "id": hit.id,
                "row": hit.row,
            }
            for query, hits in zip(self.queries, self.hits, strict=True)
            for rank, hit in enumerate(hits, start=1)
        ]

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with a row per hit."""
        columns = ["query", "rank", "similarity", "label", "id", "row"]
        return need("pandas", extra="tables").DataFrame(self.to_records(), columns=columns)

    def __str__(self) -> str:
        records = self.to_records()
        table = [("query", "rank", "similarity", "label", "id")]
        table += [
            (
                printable(r["query"]),
                str(r["rank"]),
                f"{r['similarity']:.3f}",
                printable(r["label"]),
                printable(r["id"]),
            )
            for r in records
        ]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = (
            "  ".join(
                cell.rjust(width) if at in (1, 2) else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ).rstrip()
            for cells in table
        )
        return "\n".join(lines)

    __repr__ = __str__


@dataclass(frozen=True)
class Queries:
    """What is searched for: an id and a vector each, and what could not be read."""

    ids: list[str]
    z: Tensor
    unreadable: dict[str, str]


def read_queries(
    model: Model, paths: Iterable[Path], *, on_batch: Callable[[int], None] = lambda images: None
) -> Queries:
    """Embed images, folders of images and the rows of embeddings files."""
    ids: list[str] = []
    vectors: list[Tensor] = []
    images: list[str] = []
    unreadable: dict[str, str] = {}
    for path in paths:
        if path.suffix in READERS and path.is_file():
            data = vectors_for(model, path)
            root = data.meta.get("root")
            ids += [image_path(id, root) or id for id in data.ids]
            vectors.append(data.z.float())
        elif path.is_dir():
            inside = images_under(path)
            if not inside:
                raise ValueError(f"folder {path} holds no images")
            images += inside
        elif path.exists():
            images.append(str(path))
        else:
            unreadable[str(path)] = "there is no image, folder or embeddings file of this name"
    if images:
        z, rows, errors = model.embed_readable(images, on_batch=on_batch)
        ids += [images[row] for row in rows]
        vectors.append(z)
        unreadable |= {images[row]: error.reason for row, error in errors.items()}
    return Queries(ids, torch.cat(vectors) if vectors else torch.empty(0, model.dim), unreadable)


def answer(
    gallery: "Gallery",
    queries: Queries,
    *,
    top: int = 5,
    classifier: "GalleryClassifier | None" = None,
    index: Index | None = None,
    expand: int = 0,
    rerank: bool = False,
) -> list[dict[str, Any]]:
    """Per query its most similar images, never itself, and with a classifier its likeliest classes."""
    if not queries.ids:
        return []
    rows = gallery.rows_by_path
    own = [rows.get(os.path.abspath(id), []) for id in queries.ids]
    results = gallery.search(queries.z, top=top, exclude=own, index=index, expand=expand, rerank=rerank)
    answers: list[dict[str, Any]] = [
        {
            "query": id,
            "in_gallery": bool(own_rows),
            "hits": [
                {
                    "rank": rank,
                    "similarity": round(hit.similarity, 6),
                    "label": hit.label,
                    "path": image_path(hit.id, gallery.root) or hit.id,
                    "id": hit.id,
                    "row": hit.row,
                }
                for rank, hit in enumerate(hits, start=1)
            ],
        }
        for id, own_rows, hits in zip(queries.ids, own, results, strict=True)
    ]
    if classifier is not None:
        for entry, classification in zip(answers, classifier.classify(queries.z), strict=True):
            entry["classes"] = [
                {"label": c.label, "score": round(c.score, 6), "shown": _margin(c.score, classifier)}
                for c in classification.candidates
            ]
            entry["known"] = classification.known
    return answers


def _margin(score: float, classifier: "GalleryClassifier") -> str:
    """How far above (+) or below (-) the threshold; the score itself if there is none."""
    threshold = classifier.threshold
    return f"{score:.3f}" if threshold is None else f"{score - threshold.score:+.3f}"


def describe_classifier(classifier: "GalleryClassifier") -> dict[str, Any]:
    """How queries are classified, and where the threshold comes from."""
    threshold = None if classifier.threshold is None else asdict(classifier.threshold)
    return {"how": classifier.identifier.how, "threshold": threshold, "learned_from": classifier.learned_from}
