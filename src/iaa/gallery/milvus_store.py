"""Galleries in Milvus: an embedded database in a local file, or a server; the same code for both.

A collection holds one gallery. A row is one image; its key is a hash of model and id, so that writing a row
again replaces it. The header names the model whose rows count and is written after them: a process killed
before leaves the gallery of the old model as it was.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from iaa.files import NO_FILE, Stamp
from iaa.gallery.listing import Listing
from iaa.gallery.milvus_client import COLUMNS, INDEXES, PAGE, MilvusCollection
from iaa.gallery.milvus_lock import locked
from iaa.gallery.milvus_snapshot import MilvusSnapshot, class_key, model_key, row_key
from iaa.gallery.sources import Sources
from iaa.gallery.store import VERSION, Header, NewRows, Rows, Snapshot

HEADER = "header"
"""Stands in the field ``model`` of the header's rows."""
TEXT_BYTES = 60_000
"""Of the header in one row."""


@dataclass(frozen=True, eq=False)
class MilvusStore:
    """A gallery in one collection; ``index`` (flat, hnsw or ivf) is that of a new one."""

    collection: MilvusCollection
    scratch: Path
    dim: int
    """Of the model's embeddings."""
    index: str | None = None

    @property
    def name(self) -> str:
        """``milvus:URI#COLLECTION``."""
        return str(self.collection)

    def lock(self) -> AbstractContextManager[None]:
        """Held while writing; ``BlockingIOError`` if another process holds it."""
        return locked(self.collection)

    def read(self) -> MilvusSnapshot | None:
        """Header and rows without their vectors; None if there is no gallery yet."""
        if not self.collection.exists():
            return None
        if self.collection.dim != self.dim:
            raise ValueError(
                f"{self.name} holds vectors of {self.collection.dim} dimensions, the model makes {self.dim}: "
                "milvus:URI#NAME chooses another collection"
            )
        if self.index is not None and INDEXES[self.index][0] != self.collection.index_type:
            raise ValueError(
                f"{self.name} has the index {self.collection.index_type}, not {INDEXES[self.index][0]}: "
                "name no index, or choose another collection with milvus:URI#NAME"
            )
        header = self._read_header()
        if header is None:
            return None
        key = model_key(header["model"])
        rows = list(
            self.collection.rows(f'model == "{key}"', ["name", "class_name", "split", "modified", "size"])
        )
        rows.sort(key=lambda row: str(row["name"]))
        listing = Listing(*([str(row[field]) for row in rows] for field in ("name", "class_name", "split")))
        stamps = {str(row["name"]): (int(row["modified"]), int(row["size"])) for row in rows}
        left_out = {id: reason for id, (reason, _) in header["left_out"].items()}
        stamps |= {id: (stamp[0], stamp[1]) for id, (_, stamp) in header["left_out"].items()}
        full = Header(header["model"], Sources.from_json(header["sources"]), left_out, stamps)
        return self._snapshot(listing, full, header["recall"])

    def write(
        self, header: Header, listing: Listing, new: NewRows, *, kept: Snapshot | None
    ) -> MilvusSnapshot:
        """Write new and relabelled rows, then the header, then delete what is no longer listed."""
        is_new = not self.collection.exists()
        if is_new:
            self.collection.create(self.dim, index=self.index or "hnsw")
        key = model_key(header.model)
        columns = listing.columns()

        def entries(ids: Iterable[str], z: Tensor) -> Iterator[dict[str, Any]]:
            for id, vector in zip(ids, z.float().tolist(), strict=True):
                yield _entry(key, id, *columns[id], header.stamps.get(id, NO_FILE), vector)

        for ids, z in new:
            self.collection.upsert(entries(ids, z))
        if kept is not None:
            present = {id: row for row, id in enumerate(kept.rows.ids)}
            moved = [
                row
                for id, row in present.items()
                if id in columns and columns[id] != (kept.rows.class_name(row), kept.rows.split[row])
            ]
            for chunk in torch.tensor(moved, dtype=torch.int64).split(PAGE):
                if len(chunk):
                    ids = [kept.rows.ids[row] for row in chunk.tolist()]
                    self.collection.upsert(entries(ids, kept.vectors(chunk)))
        snapshot = self._snapshot(listing, header, None)
        self._write_header(header, None)
        if not is_new:
            self._delete_others(snapshot, kept)
        self.collection.flush()
        recall = None if self.collection.index_type == "FLAT" else snapshot.measure_recall()
        self._write_header(header, recall)
        self.collection.flush()
        return self._snapshot(listing, header, recall)

    def _snapshot(self, listing: Listing, header: Header, recall: float | None) -> MilvusSnapshot:
        labels, names = listing.numbered()
        rows = Rows(listing.ids, labels, names, listing.split, None, header)
        return MilvusSnapshot(self.collection, rows, model_key(header.model), recall)

    def _delete_others(self, snapshot: MilvusSnapshot, kept: Snapshot | None) -> None:
        """Delete rows of other models, and those that are no longer listed."""
        key, listed = snapshot.model_key, set(snapshot.keys)
        self.collection.delete_where(f'model != "{key}" and model != "{HEADER}"')
        if kept is not None:
            present = (row_key(key, id) for id in kept.rows.ids)
        else:  # what a killed process may have left
            present = (str(row["key"]) for row in self.collection.rows(f'model == "{key}"', ["key"]))
        self.collection.delete([row for row in present if row not in listed])

    def _write_header(self, header: Header, recall: float | None) -> None:
        """The text in as many rows as it needs, then the row that names them: readers see old or new."""
        stamps = {id: header.stamps.get(id, NO_FILE) for id in header.left_out}
        content = {
            "gallery": VERSION,
            "model": header.model,
            "sources": header.sources.to_json(),
            "left_out": {id: [reason, stamps[id]] for id, reason in header.left_out.items()},
            "recall": recall,
        }
        text = json.dumps(content).encode()  # ASCII: any cut leaves whole characters
        digest = hashlib.sha256(text).hexdigest()[:16]
        chunks = [text[at : at + TEXT_BYTES].decode() for at in range(0, len(text), TEXT_BYTES)]
        keys = [f"{HEADER}-{digest}-{number}" for number in range(len(chunks))]
        pointer = self.collection.get([HEADER], ["name"])
        former = json.loads(pointer[HEADER]["name"]) if pointer else []
        vector = [1.0] + [0.0] * (self.dim - 1)
        self.collection.upsert(
            _entry(HEADER, chunk, "", "", NO_FILE, vector, key=key)
            for key, chunk in zip(keys, chunks, strict=True)
        )
        self.collection.upsert([_entry(HEADER, json.dumps(keys), "", "", NO_FILE, vector, key=HEADER)])
        self.collection.delete([key for key in former if key not in keys])

    def _read_header(self) -> dict[str, Any] | None:
        for _ in range(3):  # a writer may replace its rows between the two reads
            pointer = self.collection.get([HEADER], ["name"])
            if not pointer:
                return None
            keys = json.loads(pointer[HEADER]["name"])
            chunks = self.collection.get(keys, ["name"])
            if all(key in chunks for key in keys):
                return _checked(json.loads("".join(chunks[key]["name"] for key in keys)), self.name)
        raise ValueError(
            f"the header of {self.name} is incomplete: drop the collection to have it made again"
        )


def collection_name(run: Path, gallery: str, dim: int) -> str:
    """A name for the collection of a run's gallery: runs of the same name in other folders have others."""
    digest = hashlib.sha256(f"{run.resolve()} {gallery} {dim}".encode()).hexdigest()[:8]
    return (
        "iaa_" + re.sub(r"\W+", "_", f"{run.resolve().name}_{gallery}"[:100], flags=re.ASCII) + f"_{digest}"
    )


def _entry(
    model: str, id: str, class_name: str, split: str, stamp: Stamp, vector: list[float], *, key: str = ""
) -> dict[str, Any]:
    values = (model, id, class_name, class_key(class_name), split, *stamp)
    columns = dict(zip(COLUMNS, values, strict=True))
    return {"key": key or row_key(model, id), **columns, "vector": vector}


def _checked(header: Any, name: str) -> dict[str, Any]:
    again = "drop the collection to have it made again"
    if not isinstance(header, dict) or header.get("gallery") != VERSION:
        version = header.get("gallery") if isinstance(header, dict) else None
        raise ValueError(f"{name} is a gallery of version {version}, this program reads {VERSION}: {again}")
    if not isinstance(header.get("model"), dict) or not isinstance(header.get("left_out"), dict):
        raise ValueError(f"{name} is a damaged gallery: {again}")
    return header
