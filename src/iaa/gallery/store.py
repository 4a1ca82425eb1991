"""Where galleries are kept: what every store holds and what it must be able to do."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from iaa.files import Stamp
from iaa.gallery.listing import Listing
from iaa.gallery.sources import Sources
from iaa.retrieval.index import Index
from iaa.retrieval.knn import Neighbors

VERSION = 1
"""Of what a store keeps."""
NewRows = Iterable[tuple[list[str], Tensor]]
"""Ids and their vectors, in chunks."""


@dataclass(frozen=True)
class Header:
    """What a gallery remembers besides its rows, so that it can be brought up to date."""

    model: dict[str, Any]
    """Identity of the model that embedded all rows."""
    sources: Sources
    left_out: dict[str, str]
    """Images that could not be read, and why."""
    stamps: dict[str, Stamp]
    """Of the images' files when they were read, those left out included."""


@dataclass(frozen=True, eq=False)
class Rows:
    """All of a gallery but its vectors."""

    ids: list[str]
    """A reference per row: an image, or a row of an embeddings file."""
    labels: Int64[Tensor, " n"]
    class_names: dict[int, str]
    """By class number; a class without a name is called by its number."""
    split: list[str]
    """``train``, ``val`` or ``test`` per row."""
    root: str | None = None
    """The folder that relative ids lie in."""
    header: Header | None = None
    """None for an embeddings file that is searched as it is."""

    def __len__(self) -> int:
        return len(self.ids)

    def class_name(self, row: int) -> str:
        """The class of a row."""
        label = int(self.labels[row])
        return self.class_names.get(label, str(label))

    def listing(self) -> Listing:
        """Ids, class names and splits."""
        names = [self.class_names.get(label, str(label)) for label in self.labels.tolist()]
        return Listing(self.ids, names, self.split)


@runtime_checkable
class Snapshot(Protocol):
    """A gallery as it was when it was read."""

    @property
    def rows(self) -> Rows:
        """All but the vectors."""

    @property
    def dim(self) -> int:
        """Numbers of a vector."""

    def vectors(self, rows: Int64[Tensor, " m"]) -> Float[Tensor, "m d"]:
        """The vectors of some rows, in that order."""

    def search(
        self,
        query: Float[Tensor, "q d"],
        *,
        top: int,
        exclude: Int64[Tensor, "q m"] | None = None,
        within: Int64[Tensor, " w"] | None = None,
        label: str | None = None,
    ) -> Neighbors:
        """The ``top`` nearest rows by cosine; index -1 where there are fewer.

        ``exclude`` gives rows per query that must not be returned, -1 for none. Only rows ``within`` are
        returned; if these are all rows of a class, ``label`` names it.
        """

    def index(self) -> dict[str, Any]:
        """``kind`` of the index, and ``recall_at_10`` against exact search if it is approximate."""


@runtime_checkable
class Store(Protocol):
    """Keeps one gallery. Any number of processes read it, one at a time writes.

    A process killed while writing leaves old rows or new ones, none lost and none twice; the next update
    completes the work.
    """

    @property
    def name(self) -> str:
        """Where the gallery is, for messages."""

    @property
    def scratch(self) -> Path:
        """Where an unfinished update keeps its embeddings."""

    def lock(self) -> AbstractContextManager[None]:
        """Held while writing; ``BlockingIOError`` if another process holds it."""

    def read(self) -> Snapshot | None:
        """What is kept; None if there is no gallery yet."""

    def write(self, header: Header, listing: Listing, new: NewRows, *, kept: Snapshot | None) -> Snapshot:
        """Make the rows those of ``listing``: ``new`` brings some with vectors, ``kept`` has the others."""


def search_within(
    snapshot: Snapshot,
    query: Float[Tensor, "q d"],
    within: Int64[Tensor, " w"],
    *,
    top: int,
    exclude: Int64[Tensor, "q m"] | None,
) -> Neighbors:
    """Search some rows of a snapshot exactly; indices are rows of the snapshot."""
    if exclude is not None:
        position = torch.full((len(snapshot.rows) + 1,), -1)  # the last entry is that of -1
        position[within] = torch.arange(len(within))
        exclude = position[exclude]
    neighbors = Index(snapshot.vectors(within)).search(query, top=top, exclude=exclude)
    return Neighbors(torch.where(neighbors.index < 0, -1, within[neighbors.index]), neighbors.value)
