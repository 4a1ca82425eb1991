"""A gallery: embeddings of images and their classes, to be searched."""

import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from iaa.data.image_ref import ImageRef, image_path, parse_ref
from iaa.gallery.embedding import embed_query
from iaa.gallery.search_results import Hit, SearchResults
from iaa.gallery.store import Rows, Snapshot
from iaa.inference import Model, load
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.index import Index
from iaa.retrieval.knn import Neighbors
from iaa.retrieval.refinement import Refinement, refined_search


@dataclass(frozen=True, eq=False)
class Gallery:
    """A gallery as it was when it was opened; it never changes: ``add`` and ``remove`` return another one."""

    snapshot: Snapshot
    name: str
    """Where it is kept."""
    spec: str | None = None
    """What it was opened from; None means the run's own images."""
    model: Model | None = None
    """Embeds queries and new images; None if only vectors are searched for."""
    notes: tuple[str, ...] = ()
    """What the user should know, for example that the images are no longer there."""
    store: str | None = None
    """``milvus:URI``, or None for a file in the run directory."""

    @classmethod
    def open(
        cls,
        model: Model | str | os.PathLike[str],
        spec: str | Path | None = None,
        *,
        store: str | None = None,
        index: str | None = None,
        add: str | Path | Iterable[str | Path | Iterable[str | Path]] = (),
        remove: str | Path | Iterable[str | Path | Iterable[str | Path]] = (),
        devices: int = 1,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> "Gallery":
        """The run's own images, or those of ``folder:DIR``, ``table:FILE`` or an embeddings file.

        Images are embedded once and kept; later only new and changed ones are embedded, and missing ones are
        dropped.

        Args:
            model: embeds the images and later the queries; a run or a path is loaded.
            spec: what the gallery is made of; None means the run's own images.
            store: None keeps the gallery in ``RUN/galleries``; ``milvus:gallery.db`` in an embedded Milvus
                database, ``milvus:http://HOST:19530`` on a server; ``#NAME`` behind it names the collection.
            index: flat, hnsw or ivf, the index of a new collection in Milvus; hnsw if None.
            add: folders or images to add permanently.
            remove: classes or paths to remove permanently.
            devices: processes that embed the images: a GPU each, or shares of the CPU's cores.
            on_progress: called with the number of images embedded and the number of all.
        """
        from iaa.gallery.update import open_gallery

        return open_gallery(
            model if isinstance(model, Model) else load(model),
            spec,
            store=store,
            index=index,
            add=add,
            remove=remove,
            devices=devices,
            on_progress=on_progress,
        )

    @classmethod
    def from_embeddings(cls, data: Embeddings, name: str = "embeddings") -> "Gallery":
        """A gallery of embeddings in memory, searched with vectors."""
        from iaa.gallery.file_store import MemorySnapshot

        return cls(MemorySnapshot(data), name)

    def add(self, *images: str | Path | Iterable[str | Path]) -> "Gallery":
        """Add folders (a class per sub-folder, else the folder's name) or single images, permanently."""
        return Gallery.open(self._model, self.spec, store=self.store, add=images)

    def remove(self, *classes_or_paths: str | Path | Iterable[str | Path]) -> "Gallery":
        """Remove classes or paths, permanently; the image files are not touched."""
        return Gallery.open(self._model, self.spec, store=self.store, remove=classes_or_paths)

    def __repr__(self) -> str:
        """On one line: not every row of it."""
        return (
            f"Gallery({self.name!r}, {len(self):,} images of {len(self.classes):,} classes, dim={self.dim})"
        )

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def rows(self) -> Rows:
        """Ids, classes and splits."""
        return self.snapshot.rows

    @property
    def ids(self) -> list[str]:
        """A reference per row: an image, or a row of an embeddings file."""
        return self.rows.ids

    @property
    def root(self) -> str | None:
        """The folder that relative ids lie in."""
        return self.rows.root

    @property
    def dim(self) -> int:
        """Numbers of an embedding."""
        return self.snapshot.dim

    @property
    def left_out(self) -> dict[str, str]:
        """Images that could not be read, and why."""
        return {} if self.rows.header is None else dict(self.rows.header.left_out)

    @functools.cached_property
    def data(self) -> Embeddings:
        """All rows with their vectors, in memory."""
        rows, meta = self.rows, {} if self.root is None else {"root": self.root}
        kept = getattr(self.snapshot, "data", None)
        if isinstance(kept, Embeddings):
            return kept
        z = self.snapshot.vectors(torch.arange(len(rows)))
        return Embeddings(z, rows.labels, rows.ids, rows.class_names, rows.split, meta=meta)

    @functools.cached_property
    def classes(self) -> dict[str, Int64[Tensor, " n"]]:
        """The rows of every class by its name; class numbers that share a name are one class."""
        order = self.rows.labels.argsort(stable=True)
        labels, sizes = self.rows.labels[order].unique_consecutive(return_counts=True)
        parts: dict[str, list[Tensor]] = {}
        for label, rows in zip(labels.tolist(), order.split(sizes.tolist()), strict=True):
            parts.setdefault(self.class_name(label), []).append(rows)
        return {name: torch.cat(rows) for name, rows in parts.items()}

    def class_name(self, label: int) -> str:
        """The name of a class by its number."""
        return self.rows.class_names.get(label, str(label))

    def label(self, row: int) -> str:
        """The class of a row."""
        return self.rows.class_name(row)

    def image(self, row: int) -> ImageRef | None:
        """The image of a row; None if there is no such file."""
        ref = parse_ref(self.ids[row], self.root)
        return ref if isinstance(ref, ImageRef) and os.path.isfile(ref.path) else None

    def vectors(self, rows: Int64[Tensor, " m"]) -> Float[Tensor, "m d"]:
        """The embeddings of some rows, in that order."""
        return self.snapshot.vectors(rows)

    @functools.cached_property
    def rows_by_path(self) -> dict[str, list[int]]:
        """The rows of every image by its absolute path, several if it has several boxes; vectors by id."""
        rows: dict[str, list[int]] = {}
        for row, id in enumerate(self.ids):
            path = image_path(id, self.root)
            rows.setdefault(os.path.abspath(path or id), []).append(row)
        return rows

    @functools.cached_property
    def version(self) -> str:
        """A short hash that changes when ids, images or their location change."""
        header = self.rows.header
        written = os.stat(self.name).st_mtime_ns if os.path.isfile(self.name) else 0
        digest = hashlib.sha256(f"{self.name} {self.root} {written}\n".encode(errors="replace"))
        for id in self.ids:
            stamp = None if header is None else header.stamps.get(id)
            digest.update(f"{id} {stamp}\n".encode(errors="replace"))
        return digest.hexdigest()[:12]

    def search(
        self,
        query: Any,
        *,
        top: int = 5,
        label: str | None = None,
        exclude: Iterable[int | Sequence[int]] | None = None,
        within: Int64[Tensor, " m"] | None = None,
        index: Index | None = None,
        expand: int = 0,
        rerank: bool = False,
    ) -> SearchResults:
        """The most similar images of each query, nearest first: a list of hits per query.

        Args:
            query: an image as a path, PIL image, bytes or uint8 array, an embedding, or several of a kind.
            top: hits per query.
            label: only images of this class.
            exclude: per query a row or several that must not be returned, -1 or nothing for none.
            within: only these rows.
            index: an index over all rows to use instead of the gallery's own.
            expand: query expansion: add this many nearest to every query and search again; for classes that
                have more images than that.
            rerank: k-reciprocal re-ranking among the 1,000 nearest of a query, some 0.1 seconds each; for
                classes of ten images or more. ``similarity`` is then no cosine, and 1 at most.
        """
        refinement = Refinement(expand=expand, rerank=rerank)
        names, z = embed_query(query, self.model, dim=self.dim)
        if z.ndim != 2 or z.shape[1] != self.dim:
            raise ValueError(
                f"gallery {self.name} holds vectors of {self.dim} dimensions, "
                f"the query has shape {tuple(z.shape)}"
            )
        excluded = None if exclude is None else self._excluded(exclude, len(z))
        if label is not None:
            if within is not None:
                raise ValueError("label and within must not be given together")
            if label not in self.classes:
                raise ValueError(f"the gallery has no class {label!r}")
            within = self.classes[label]
        if within is not None and len(within) and not 0 <= int(within.min()) <= int(within.max()) < len(self):
            raise ValueError(f"within must hold rows of the gallery, 0 … {len(self) - 1}")
        if within is not None and not len(within):
            return SearchResults([[] for _ in names], names)

        def search(query: Tensor, count: int) -> Neighbors:
            if index is not None and within is None:
                return index.search(query, top=count, exclude=excluded)
            return self.snapshot.search(query, top=count, exclude=excluded, within=within, label=label)

        # those of an index may be augmented
        vectors = self.vectors if index is None or within is not None else index.gallery.__getitem__
        neighbors = refined_search(refinement, z, search, vectors, top=top)
        hits = [
            [self._hit(row, value) for row, value in zip(rows, values, strict=True) if row >= 0]
            for rows, values in zip(neighbors.index.tolist(), neighbors.value.tolist(), strict=True)
        ]
        return SearchResults(hits, names)

    @property
    def _model(self) -> Model:
        if self.model is None:
            raise ValueError(f"gallery {self.name} was made without a model and cannot be changed")
        return self.model

    def _excluded(self, exclude: Iterable[int | Sequence[int]], queries: int) -> Int64[Tensor, "q m"]:
        """A row per query, filled up with -1."""
        rows = [np.atleast_1d(np.asarray(entry)).tolist() for entry in exclude]
        if len(rows) != queries:
            raise ValueError(f"exclude must have an entry per query, {queries}, got {len(rows)}")
        for row in itertools.chain(*rows):
            if not -1 <= row < len(self):
                raise ValueError(
                    f"exclude must hold rows of the gallery, 0 … {len(self) - 1}, or -1; got {row}"
                )
        width = max(map(len, rows), default=0)
        padded = [row + [-1] * (width - len(row)) for row in rows]
        return torch.tensor(padded, dtype=torch.int64).view(queries, width)

    def _hit(self, row: int, similarity: float) -> Hit:
        return Hit(row, similarity, self.label(row), self.ids[row])

    def describe(self) -> dict[str, Any]:
        """Size and location."""
        return {
            "name": self.name,
            "images": len(self),
            "classes": len(self.classes),
            "dim": self.dim,
            "left_out": len(self.left_out),
        }
