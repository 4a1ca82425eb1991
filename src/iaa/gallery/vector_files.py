"""Embeddings files read and written in chunks, so that memory does not grow with the number of vectors."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from iaa.errors import need, unknown
from iaa.files import CHECKSUM, file_digest, parse_json, raw_bytes, replacing, update_digest
from iaa.gallery.listing import Listing, list_embeddings
from iaa.gallery.store import Rows
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.formats import READERS, from_columns, pack, unpack
from iaa.table_files import parquet_batches, read_parquet

CHUNK = 8192
"""Rows held at a time."""
EXPORTS = (".safetensors", ".parquet")
"""Formats that are written in chunks."""
COLUMNS = ["id", "path", "label", "class", "split"]
"""Columns of a Parquet file that a gallery needs, besides the vectors."""


@dataclass(frozen=True, eq=False)
class VectorFile:
    """An embeddings file: its rows without vectors, which are read as they are needed."""

    path: Path
    listing: Listing
    dim: int
    meta: dict[str, Any]

    def check(self) -> None:
        """Read all vectors once: raises if any is not finite or the checksum does not match."""
        for _ in self.chunks():
            pass
        if self.path.suffix == ".safetensors":
            _check_sum(self.path)

    def chunks(self) -> Iterator[tuple[list[str], Tensor]]:
        """Ids and vectors of all rows, in order."""
        start = 0
        for z in _vectors(self.path):
            if z.shape[1] != self.dim or not bool(z.isfinite().all()):
                raise ValueError(f"{self.path}: vectors must be finite and have {self.dim} numbers each")
            yield self.listing.ids[start : start + len(z)], z.float()
            start += len(z)


def open_vectors(path: Path) -> VectorFile:
    """The rows of an embeddings file; of ``.safetensors`` and ``.parquet`` without reading its vectors."""
    if path.suffix not in READERS:
        raise unknown("the file's ending", path.suffix, READERS)
    if not path.is_file():
        raise FileNotFoundError(f"no embeddings file at {path}")
    try:
        first = next(_vectors(path), None)
        if first is None or not first.shape[1]:
            raise ValueError(f"{path} holds no vectors")
        data = _columns(path)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from error
    return VectorFile(path, list_embeddings(data, path), first.shape[1], data.meta)


def write_vectors(
    path: Path, rows: Rows, chunks: Iterator[Tensor], *, dim: int, meta: dict[str, Any]
) -> None:
    """Write an embeddings file atomically, one chunk of vectors at a time."""
    if path.suffix not in EXPORTS:
        raise unknown("the file's ending", path.suffix, EXPORTS)
    with replacing(path) as temporary:
        if path.suffix == ".parquet":
            _write_parquet(temporary, rows, chunks, dim, meta)
        else:
            _write_safetensors(temporary, rows, chunks, dim, meta)


def _vectors(path: Path) -> Iterator[Tensor]:
    """The vectors of a file in chunks."""
    if path.suffix == ".safetensors":
        with _safetensors(path) as file:
            matrix = file.get_slice("z")
            for start in range(0, matrix.get_shape()[0], CHUNK):
                yield matrix[start : start + CHUNK]
    elif path.suffix == ".parquet":
        import pyarrow.compute as pc

        for lists in parquet_batches(path, "embedding", rows=CHUNK):
            if lists.null_count or len(pc.unique(pc.list_value_length(lists))) > 1:
                raise ValueError(f"{path}: the lists in 'embedding' must have one length in every row")
            flat = torch.from_numpy(lists.flatten().to_numpy(zero_copy_only=False).astype("float32"))
            yield flat.view(len(lists), -1)
    else:
        yield from Embeddings.load(path).z.split(CHUNK)


def _columns(path: Path) -> Embeddings:
    """All of a file but its vectors, in whose stead there is a single number a row."""
    if path.suffix == ".safetensors":
        with _safetensors(path) as file:
            tensors = {name: file.get_tensor(name) for name in file.keys() if name != "z"}  # noqa: SIM118
            metadata = file.metadata() or {}
        return unpack(tensors | {"z": torch.ones(len(tensors["labels"]), 1)}, metadata, path)
    if path.suffix != ".parquet":
        return Embeddings.load(path)
    table, columns = read_parquet(path, only=COLUMNS)
    meta = parse_json((table.schema.metadata or {}).get(b"meta", b"{}"), f"the metadata of {path}")
    return from_columns(path, np.ones((len(table), 1)), columns, meta)


def _check_sum(path: Path) -> None:
    """Raise unless the content matches the checksum; files of other programs may have none."""
    with _safetensors(path) as file:
        metadata = file.metadata() or {}
        expected = metadata.pop(CHECKSUM, None)
        tensors = {name: file.get_tensor(name) for name in file.keys() if name != "z"}  # noqa: SIM118
        digest = file_digest(tensors, metadata)
        update_digest(digest, "z", file.get_slice("z").get_shape(), _vectors(path))
    if expected is not None and digest.hexdigest() != expected:
        raise ValueError(f"{path} is damaged: its content does not match its checksum")


def _safetensors(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, "pt")
    except SafetensorError as error:
        raise ValueError(f"{path} is truncated or not a safetensors file: {error}") from error


def _write_parquet(path: Path, rows: Rows, chunks: Iterator[Tensor], dim: int, meta: dict[str, Any]) -> None:
    arrow, parquet = need("pyarrow", extra="tables"), need("pyarrow.parquet", extra="tables")
    text = [(name, arrow.string()) for name in ("class", "split", "role")]
    vector = ("embedding", arrow.list_(arrow.float32(), dim))
    schema = arrow.schema([("id", arrow.string()), ("label", arrow.int64()), *text, vector])
    schema = schema.with_metadata({"meta": json.dumps(meta)})
    start = 0
    with parquet.ParquetWriter(path, schema, write_page_checksum=True) as writer:
        for z in chunks:
            part = slice(start, start + len(z))
            labels = rows.labels[part].tolist()
            columns = [
                rows.ids[part],
                labels,
                [rows.class_names.get(label, "") for label in labels],
                rows.split[part],
                ["both"] * len(z),
                arrow.FixedSizeListArray.from_arrays(z.float().contiguous().numpy().reshape(-1), dim),
            ]
            writer.write_table(arrow.table(columns, schema=schema))
            start += len(z)


def _write_safetensors(
    path: Path, rows: Rows, chunks: Iterator[Tensor], dim: int, meta: dict[str, Any]
) -> None:
    """What ``write_tensors`` writes, but the vectors come in chunks; the checksum is known at the end."""
    columns = Embeddings(
        torch.empty(len(rows), 0), rows.labels, rows.ids, rows.class_names, rows.split, meta=meta
    )
    tensors, metadata = pack(columns)
    del tensors["z"]
    numbers = {torch.int64: "I64", torch.uint8: "U8"}
    wide = [name for name, tensor in tensors.items() if tensor.dtype == torch.int64]
    order = [*wide, "z", *(name for name in tensors if name not in wide)]  # keeps numbers aligned
    entries, end = {}, 0
    for name in order:
        shape = (len(rows), dim) if name == "z" else tensors[name].shape
        begin, end = end, end + (4 * len(rows) * dim if name == "z" else tensors[name].nbytes)
        kind = "F32" if name == "z" else numbers[tensors[name].dtype]
        entries[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}

    def header(checksum: str) -> bytes:
        text = json.dumps({"__metadata__": {**metadata, CHECKSUM: checksum}, **entries}).encode()
        text = text.ljust(-(-len(text) // 8) * 8)
        return len(text).to_bytes(8, "little") + text

    digest = file_digest(tensors, metadata)
    with open(path, "wb") as file:
        file.write(header("0" * 64))
        for name in order:
            if name == "z":
                update_digest(digest, "z", (len(rows), dim), _written(chunks, file))
            else:
                file.write(raw_bytes(tensors[name]))
        file.seek(0)
        file.write(header(digest.hexdigest()))


def _written(chunks: Iterator[Tensor], file: Any) -> Iterator[Tensor]:
    """The chunks as float32, each written to the file."""
    for chunk in chunks:
        z = chunk.float()
        file.write(raw_bytes(z))
        yield z


def chunked(rows: Sequence[Any]) -> Iterator[Tensor]:
    """Row numbers in chunks."""
    return iter(torch.arange(len(rows)).split(CHUNK))
