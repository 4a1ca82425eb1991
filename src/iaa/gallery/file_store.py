"""Galleries in a local file: one embeddings file, read into memory and searched exactly."""

import base64
import binascii
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from iaa.files import NO_FILE, Lock, Stamp
from iaa.gallery.listing import Listing
from iaa.gallery.sources import Sources
from iaa.gallery.store import VERSION, Header, NewRows, Rows, Snapshot, search_within
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.index import Index
from iaa.retrieval.knn import Neighbors

MAKE_AGAIN = "delete it to have it made again"


@dataclass(frozen=True, eq=False)
class MemorySnapshot:
    """Embeddings in memory, searched exactly."""

    data: Embeddings
    header: Header | None = None

    @functools.cached_property
    def rows(self) -> Rows:
        """All but the vectors."""
        root = self.data.meta.get("root")
        return Rows(
            self.data.ids,
            self.data.labels,
            self.data.class_names or {},
            self.data.split,
            root if isinstance(root, str) else None,
            self.header,
        )

    @property
    def dim(self) -> int:
        """Numbers of a vector."""
        return int(self.data.z.shape[1])

    @functools.cached_property
    def _exact(self) -> Index:
        return Index(self.data.z)

    def vectors(self, rows: Int64[Tensor, " m"]) -> Float[Tensor, "m d"]:
        """The vectors of some rows, in that order."""
        return self.data.z[rows]

    def search(
        self,
        query: Float[Tensor, "q d"],
        *,
        top: int,
        exclude: Int64[Tensor, "q m"] | None = None,
        within: Int64[Tensor, " w"] | None = None,
        label: str | None = None,
    ) -> Neighbors:
        """See ``Snapshot.search``."""
        if within is None:
            return self._exact.search(query, top=top, exclude=exclude)
        return search_within(self, query, within, top=top, exclude=exclude)

    def index(self) -> dict[str, Any]:
        """Search is exact."""
        return {"kind": "exact"}


@dataclass(frozen=True)
class FileStore:
    """A gallery in one embeddings file, which every update replaces atomically."""

    file: Path

    @property
    def name(self) -> str:
        """The path of the file."""
        return str(self.file)

    @property
    def scratch(self) -> Path:
        """A folder next to the file."""
        return self.file.with_suffix(".parts")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Held while writing; temporary files that a killed process left are removed."""
        try:
            lock = Lock(self.file.with_suffix(".lock"))
        except BlockingIOError:
            raise
        except OSError as error:
            raise OSError(f"cannot keep a gallery in {self.file.parent}: {error}") from error
        with lock:
            for temporary in self.file.parent.glob(f".{self.file.stem}-*{self.file.suffix}"):
                temporary.unlink(missing_ok=True)
            yield

    def read(self) -> MemorySnapshot | None:
        """The content of the file, checked; None if there is no file."""
        if not self.file.is_file():
            return None
        try:
            data = Embeddings.load(self.file)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            prefix = "" if str(self.file) in str(error) else f"{self.file} is damaged: "
            raise ValueError(f"{prefix}{error}: {MAKE_AGAIN}") from error
        version = data.meta.get("gallery") if isinstance(data.meta, dict) else None
        if version != VERSION:
            raise ValueError(
                f"{self.file} is a gallery of version {version}, this program reads {VERSION}: {MAKE_AGAIN}"
            )
        try:
            header = _header(data)
        except ValueError as error:
            raise ValueError(f"{self.file} is a damaged gallery: {error}: {MAKE_AGAIN}") from error
        return MemorySnapshot(data, header)

    def write(
        self, header: Header, listing: Listing, new: NewRows, *, kept: Snapshot | None
    ) -> MemorySnapshot:
        """Write the whole file anew and replace the old one."""
        row_of: dict[str, int] = {}
        vectors: list[Tensor] = []
        if kept is not None:
            row_of = {id: row for row, id in enumerate(kept.rows.ids)}
            vectors.append(kept.vectors(torch.arange(len(kept.rows))))
        for ids, z in new:
            if ids:
                start = sum(map(len, vectors))
                row_of |= {id: start + row for row, id in enumerate(ids)}
                vectors.append(z)
        z = vectors[0] if len(vectors) == 1 else torch.cat(vectors)
        z = z[torch.tensor([row_of[id] for id in listing.ids])]
        meta = _meta(header, listing.ids)
        labels, names = listing.numbered()
        data = Embeddings(z, labels, listing.ids, names, listing.split, meta=meta)
        data.save(self.file)
        return MemorySnapshot(data, header)


def _meta(header: Header, ids: list[str]) -> dict[str, Any]:
    stamps = [header.stamps.get(id, NO_FILE) for id in (*ids, *header.left_out)]
    return {
        "gallery": VERSION,
        "model": header.model,
        "sources": header.sources.to_json(),
        "left_out": header.left_out,
        "stamps": base64.b64encode(np.array(stamps, dtype="<i8").tobytes()).decode(),
    }


def _header(data: Embeddings) -> Header:
    """The header in a file's metadata, checked before anything relies on it."""
    model, left_out = data.meta.get("model"), data.meta.get("left_out")
    if not isinstance(model, dict):
        raise ValueError("the identity of its model is missing")
    if not isinstance(left_out, dict) or not all(isinstance(reason, str) for reason in left_out.values()):
        raise ValueError("its list of unreadable images is missing")
    sources = Sources.from_json(data.meta.get("sources"))
    names = data.class_names or {}
    for label in data.labels.unique().tolist():
        if label not in names:
            raise ValueError(f"its class {label} has no name")
    return Header(model, sources, left_out, _stamps(data.meta.get("stamps"), [*data.ids, *left_out]))


def _stamps(text: object, ids: list[str]) -> dict[str, Stamp]:
    try:
        content = base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if len(content) != 16 * len(ids):
        raise ValueError("its record of file dates is missing or damaged")
    pairs = np.frombuffer(content, dtype="<i8").reshape(-1, 2).tolist()
    return {id: (date, size) for id, (date, size) in zip(ids, pairs, strict=True)}
