"""A gallery: embeddings of images and what they show, to be searched."""

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from iaa.gallery.gallery_items import image
from iaa.inference import Model
from iaa.provenance import ImageRef
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.index import Index


class Hit(NamedTuple):
    """One answer."""

    row: int
    """Its place in the gallery."""
    similarity: float
    """Cosine, 1 at most."""
    label: str
    id: str


@dataclass(frozen=True, eq=False)
class Gallery:
    """What stands in a gallery's file at one moment; it never changes, ``add`` and ``remove`` give another.

    The file is replaced as a whole, so a reader has the old gallery or the new one, never a mixture.
    """

    data: Embeddings
    file: Path
    spec: str | None = None
    """What it was opened from; None means the run's own images."""
    notes: tuple[str, ...] = ()
    """What a person should know, such as that the images themselves are not here any more."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Images that could not be read, and why."""

    @classmethod
    def open(
        cls,
        model: Model,
        spec: str | Path | None = None,
        *,
        add: str | Path | Iterable[str | Path] = (),
        remove: str | Path | Iterable[str | Path] = (),
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> "Gallery":
        """The run's own images, or those of ``folder:DIR``, ``table:FILE`` or an embeddings file.

        Embedded once and kept in ``RUN/galleries``; later only what is new or changed is embedded, and what
        is gone is dropped. ``add`` brings folders or images in, ``remove`` takes classes or paths out, both
        for good. ``on_progress`` is told how many images of how many are embedded.
        """
        from iaa.gallery.gallery_store import open_gallery

        return open_gallery(model, spec, add=add, remove=remove, on_progress=on_progress)

    def add(self, model: Model, *paths: str | Path) -> "Gallery":
        """With the images of folders (a class per sub-folder, or the folder's name) or single images."""
        return Gallery.open(model, self.spec, add=paths)

    def remove(self, model: Model, *what: str | Path) -> "Gallery":
        """Without these classes or paths; the images themselves stay where they are."""
        return Gallery.open(model, self.spec, remove=what)

    def __len__(self) -> int:
        return len(self.data)

    @property
    def dim(self) -> int:
        """Numbers of an embedding."""
        return int(self.data.z.shape[1])

    @functools.cached_property
    def classes(self) -> dict[str, Int64[Tensor, " n"]]:
        """Every class and its rows; numbers that share a name are one class."""
        order = self.data.labels.argsort(stable=True)
        labels, sizes = self.data.labels[order].unique_consecutive(return_counts=True)
        parts = order.split(sizes.tolist())
        found: dict[str, list[Tensor]] = {}
        for label, rows in zip(labels.tolist(), parts, strict=True):
            found.setdefault(self.class_name(label), []).append(rows)
        return {name: torch.cat(rows) for name, rows in found.items()}

    def class_name(self, label: int) -> str:
        """The name of a class by its number."""
        return (self.data.class_names or {}).get(label, str(label))

    def label(self, row: int) -> str:
        """The class of a row."""
        return self.class_name(int(self.data.labels[row]))

    def image(self, row: int) -> ImageRef | None:
        """The file of a row and the box in it; None where it is not here."""
        found = image(self.data.ids[row], self.data.meta.get("root"))
        return found if os.path.isfile(found.path) else None

    @functools.cached_property
    def rows_by_path(self) -> dict[str, list[int]]:
        """The rows of every image by its absolute path: several where it has several boxes."""
        root, found = self.data.meta.get("root"), dict[str, list[int]]()
        for row, name in enumerate(self.data.ids):
            found.setdefault(os.path.abspath(image(name, root).path), []).append(row)
        return found

    @functools.cached_property
    def exact(self) -> Index:
        """The exact index, made at the first search."""
        return Index(self.data.z)

    def search(
        self,
        query: Float[Tensor, "q d"],
        *,
        top: int = 5,
        exclude: Iterable[int | Sequence[int]] | None = None,
        within: Int64[Tensor, " m"] | None = None,
        index: Index | None = None,
    ) -> list[list[Hit]]:
        """The most similar images of each query, nearest first.

        ``exclude`` gives a row or several per query that must not answer, -1 or nothing for none (an image
        of the gallery that asks for others like itself). Only rows ``within`` may answer. ``index`` may
        replace the exact one.
        """
        if query.ndim != 2 or query.shape[1] != self.dim:
            raise ValueError(
                f"gallery {self.file} holds vectors of {self.dim} dimensions, "
                f"the query has shape {tuple(query.shape)}"
            )
        own = None if exclude is None else self._excluded(exclude, len(query))
        if within is not None and len(within) and not 0 <= int(within.min()) <= int(within.max()) < len(self):
            raise ValueError(f"within must hold rows of the gallery, 0 … {len(self) - 1}")
        if within is not None and not len(within):
            return [[] for _ in query]
        if within is not None:
            index = Index(self.data.z[within])
            if own is not None:
                place = torch.full((len(self) + 1,), -1)
                place[within] = torch.arange(len(within))
                own = place[own]
        found = (index or self.exact).search(query, top=top, exclude=own)
        rows = found.index if within is None else torch.where(found.index < 0, -1, within[found.index])
        return [
            [self._hit(row, value) for row, value in zip(places, values, strict=True) if row >= 0]
            for places, values in zip(rows.tolist(), found.value.tolist(), strict=True)
        ]

    def _excluded(self, given: Iterable[int | Sequence[int]], queries: int) -> Int64[Tensor, "q m"]:
        """As many columns as the query with the most rows to leave out has, filled up with -1."""
        rows = [np.atleast_1d(np.asarray(one)).tolist() for one in given]
        if len(rows) != queries:
            raise ValueError(f"exclude must have an entry per query, {queries}, got {len(rows)}")
        for row in itertools.chain(*rows):
            if not -1 <= row < len(self):
                raise ValueError(
                    f"exclude must hold rows of the gallery, 0 … {len(self) - 1}, or -1; got {row}"
                )
        most = max(map(len, rows), default=0)
        full = [row + [-1] * (most - len(row)) for row in rows]
        return torch.tensor(full, dtype=torch.int64).view(queries, most)

    def _hit(self, row: int, similarity: float) -> Hit:
        return Hit(row, similarity, self.label(row), self.data.ids[row])

    def describe(self) -> dict[str, Any]:
        """Size and origin, for people and programs."""
        return {
            "file": str(self.file),
            "images": len(self),
            "classes": len(self.classes),
            "dim": self.dim,
            "left_out": len(self.left_out),
        }
