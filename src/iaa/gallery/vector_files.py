"""Embeddings files read and written in chunks, so that memory does not grow with the number of vectors."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from iaa.errors import need, unknown
from iaa.files import parse_json, replacing
from iaa.gallery.listing import Listing, with_row_ids
from iaa.gallery.store import Rows
from iaa.retrieval.embeddings import ROLES, SPLITS, Embeddings
from iaa.retrieval.formats import FORMAT, READERS, pack_strings, unpack_strings
from iaa.table_files import open_parquet

CHUNK = 8192
"""Rows held at a time."""
EXPORTS = (".safetensors", ".parquet")
"""Formats that are written in chunks."""


@dataclass(frozen=True, eq=False)
class VectorFile:
    """An embeddings file: its rows without vectors, which are read as they are needed."""

    path: Path
    listing: Listing
    dim: int
    meta: dict[str, Any]

    def chunks(self) -> Iterator[tuple[list[str], Tensor]]:
        """Ids and vectors of all rows, in order."""
        start = 0
        for z in _vectors(self.path):
            if z.shape[1] != self.dim or not bool(z.isfinite().all()):
                raise ValueError(f"{self.path}: vectors must be finite and have {self.dim} numbers each")
            yield self.listing.ids[start : start + len(z)], z
            start += len(z)


def open_vectors(path: Path) -> VectorFile:
    """The rows of an embeddings file; of ``.safetensors`` and ``.parquet`` without reading its vectors."""
    if path.suffix not in READERS:
        raise unknown("the file's ending", path.suffix, READERS)
    if not path.is_file():
        raise FileNotFoundError(f"no embeddings file at {path}")
    first = next(_vectors(path), None)
    if first is None or not first.shape[1]:
        raise ValueError(f"{path} holds no vectors")
    try:
        data = with_row_ids(_columns(path), path)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from error
    root = data.meta.get("root")
    ids = [os.path.join(root, id) if isinstance(root, str) else id for id in data.ids]
    if len(set(ids)) < len(ids):
        raise ValueError(f"{path} has two rows with the same id: a gallery needs every id once")
    return VectorFile(path, Listing(ids, data.distinct_names(), data.split), first.shape[1], data.meta)


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
    """The vectors of a file in chunks of float32."""
    if path.suffix == ".safetensors":
        with _safetensors(path) as file:
            matrix = file.get_slice("z")
            for start in range(0, matrix.get_shape()[0], CHUNK):
                yield matrix[start : start + CHUNK].float()
    elif path.suffix == ".parquet":
        for batch in _parquet(path).iter_batches(CHUNK, columns=["embedding"]):
            lists = batch.column(0)
            flat = torch.from_numpy(lists.flatten().to_numpy(zero_copy_only=False).astype("float32"))
            if len(flat) % max(1, len(lists)):
                raise ValueError(f"{path}: the lists in 'embedding' must have one length in every row")
            yield flat.view(len(lists), -1)
    else:
        yield from Embeddings.load(path).z.float().split(CHUNK)


def _columns(path: Path) -> Embeddings:
    """All of a file but its vectors, in whose stead there is a single number a row."""
    if path.suffix == ".safetensors":
        with _safetensors(path) as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys() if name != "z"}  # noqa: SIM118
        splits, labels = json.loads(header["splits"]), tensors["labels"]
        names = None
        if "class_labels" in tensors:
            numbers = tensors["class_labels"].tolist()
            names = dict(zip(numbers, unpack_strings("class_names", tensors), strict=True))
        split = [splits[number] for number in tensors["split"].tolist()]
        ids, meta = unpack_strings("ids", tensors), parse_json(header["meta"], f"the header of {path}")
        return Embeddings(torch.ones(len(labels), 1), labels, ids, names, split, meta=meta)
    if path.suffix != ".parquet":
        return Embeddings.load(path)
    file = _parquet(path)
    wanted = [name for name in ("id", "path", "label", "class", "split") if name in file.schema_arrow.names]
    table = file.read(columns=wanted)
    columns = {name: [str(value) for value in table[name].to_pylist()] for name in wanted}
    if "label" not in columns:
        raise ValueError(f"{path} lacks the column 'label', it has {', '.join(wanted) or 'none'}")
    numbers = {name: number for number, name in enumerate(dict.fromkeys(columns["label"]))}
    shown = columns.get("class", columns["label"])
    labels = torch.tensor([numbers[name] for name in columns["label"]])
    names = {numbers[label]: name or label for label, name in zip(columns["label"], shown, strict=True)}
    ids = columns.get("id", columns.get("path", []))
    metadata = (file.schema_arrow.metadata or {}).get(b"meta", b"{}")
    meta = parse_json(metadata, f"the metadata of {path}")
    return Embeddings(torch.ones(len(labels), 1), labels, ids, names, columns.get("split", []), meta=meta)


def _safetensors(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        file = safe_open(path, "pt")
        with file as opened:
            header = opened.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is truncated or not a safetensors file: {error}") from error
    if header.get("format") != FORMAT:
        raise ValueError(f"{path} is not an embeddings file: its header lacks format = {FORMAT!r}")
    return safe_open(path, "pt")


def _parquet(path: Path) -> Any:
    file = open_parquet(path)
    if "embedding" not in file.schema_arrow.names:
        raise ValueError(f"{path} lacks the column 'embedding', it has {', '.join(file.schema_arrow.names)}")
    return file


def _write_parquet(path: Path, rows: Rows, chunks: Iterator[Tensor], dim: int, meta: dict[str, Any]) -> None:
    arrow, parquet = need("pyarrow", extra="tables"), need("pyarrow.parquet", extra="tables")
    text = [(name, arrow.string()) for name in ("class", "split", "role")]
    vector = ("embedding", arrow.list_(arrow.float32(), dim))
    schema = arrow.schema([("id", arrow.string()), ("label", arrow.int64()), *text, vector])
    schema = schema.with_metadata({"meta": json.dumps(meta)})
    start = 0
    with parquet.ParquetWriter(path, schema) as writer:
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
    """The header, the small tensors, and the vectors at the end, as they come."""
    small = {"labels": rows.labels, "role": torch.zeros(len(rows), dtype=torch.uint8)}
    small["split"] = torch.tensor([SPLITS.index(name) for name in rows.split], dtype=torch.uint8)
    small |= pack_strings("ids", rows.ids)
    small["class_labels"] = torch.tensor(list(rows.class_names), dtype=torch.int64)
    small |= pack_strings("class_names", list(rows.class_names.values()))
    names = sorted(small, key=lambda name: (-small[name].element_size(), name))  # keeps them aligned
    header: dict[str, Any] = {
        "__metadata__": {
            "format": FORMAT,
            "splits": json.dumps(SPLITS),
            "roles": json.dumps(ROLES),
            "meta": json.dumps(meta),
        }
    }
    start = len(rows) * dim * 4
    header["z"] = {"dtype": "F32", "shape": [len(rows), dim], "data_offsets": [0, start]}
    for name in names:
        tensor = small[name]
        kind = {torch.int64: "I64", torch.uint8: "U8"}[tensor.dtype]
        header[name] = {
            "dtype": kind,
            "shape": list(tensor.shape),
            "data_offsets": [start, start + tensor.nbytes],
        }
        start += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for z in chunks:
            file.write(z.float().contiguous().numpy().data)
        for name in names:
            file.write(small[name].contiguous().numpy().data)


def chunked(rows: Sequence[Any]) -> Iterator[Tensor]:
    """Row numbers in chunks."""
    return iter(torch.arange(len(rows)).split(CHUNK))
