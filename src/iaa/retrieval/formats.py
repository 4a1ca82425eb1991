"""Embeddings on disk: the project's ``.safetensors``, and ``.npz``, ``.npy`` with a ``.csv``, Parquet.

Layout of the ``.safetensors``, readable with ``safetensors.safe_open`` alone: ``z`` (N, D) and ``labels``
(N,) int64; ``split`` and ``role`` (N,) uint8, positions in the header's JSON lists ``splits`` and ``roles``;
every list of strings as UTF-8 bytes in one uint8 tensor and the (N + 1,) int64 positions between them:
``ids.bytes`` and ``ids.ends``, likewise ``sequence`` (if there are any) and ``class_names`` (with
``class_labels``, the labels they name). The header also holds ``format``, ``meta`` as JSON and a checksum.
Nothing is ever unpickled.
"""

import csv
import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from iaa.errors import need
from iaa.files import parse_json, read_tensors, replacing, write_tensors
from iaa.retrieval.array_files import read_npy_file, read_npz_file
from iaa.retrieval.embeddings import ROLES, SPLITS, Embeddings
from iaa.retrieval.input_checks import as_labels, as_vectors
from iaa.table_files import read_csv
from iaa.table_files import read_parquet as read_parquet_columns

FORMAT = "iaa-embeddings-1"
_LISTS = ("ids", "split", "role", "sequence")
_NOTES = ("class_names", "meta")


def write_safetensors(data: Embeddings, path: Path) -> None:
    """The project's own format, as described at the top."""
    write_tensors(path, *pack(data))


def read_safetensors(path: Path) -> Embeddings:
    """In private memory, with the checksum verified: what happens to the file afterwards has no effect."""
    return unpack(*read_tensors(path), path)


def pack(data: Embeddings) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of the file."""
    tensors = {"z": data.z, "labels": data.labels}
    tensors["split"] = torch.tensor([SPLITS.index(name) for name in data.split], dtype=torch.uint8)
    tensors["role"] = torch.tensor([ROLES.index(name) for name in data.role], dtype=torch.uint8)
    tensors |= pack_strings("ids", data.ids)
    if data.sequence:
        tensors |= pack_strings("sequence", data.sequence)
    if data.class_names is not None:
        tensors["class_labels"] = torch.tensor(list(data.class_names), dtype=torch.int64)
        tensors |= pack_strings("class_names", list(data.class_names.values()))
    metadata = {
        "format": FORMAT,
        "splits": json.dumps(SPLITS),
        "roles": json.dumps(ROLES),
        "meta": json.dumps(data.meta),
    }
    return tensors, metadata


def unpack(tensors: dict[str, Tensor], metadata: dict[str, str], path: Path) -> Embeddings:
    """The inverse of ``pack``."""
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} is not an embeddings file: its header lacks format = {FORMAT!r}")
    class_names = None
    if "class_labels" in tensors:
        names = unpack_strings("class_names", tensors)
        numbers = as_labels(tensors["class_labels"], len(names), "class_labels")
        class_names = dict(zip(numbers.tolist(), names, strict=True))
    z = as_vectors(tensors["z"])
    return Embeddings(
        z,
        as_labels(tensors["labels"], len(z)),
        unpack_strings("ids", tensors),
        class_names,
        _named("split", tensors, metadata["splits"]),
        _named("role", tensors, metadata["roles"]),
        parse_json(metadata["meta"], "meta"),
        unpack_strings("sequence", tensors) if "sequence.ends" in tensors else [],
    )


def write_npz(data: Embeddings, path: Path) -> None:
    """Arrays ``z``, ``labels``, ``ids``, ``split``, ``role``, ``class_names`` and ``meta`` (both as JSON)."""
    class_names = {str(label): name for label, name in (data.class_names or {}).items()}
    columns: dict[str, Any] = {
        "z": data.z.float().numpy(),
        "labels": data.labels.numpy(),
        "ids": np.array(data.ids, dtype=str),
        "split": np.array(data.split),
        "role": np.array(data.role),
        "class_names": np.array(json.dumps(class_names)),
        "meta": np.array(json.dumps(data.meta)),
    }
    if data.sequence:
        columns["sequence"] = np.array(data.sequence, dtype=str)
    with replacing(path) as temporary:
        np.savez(temporary, **columns)


def read_npz(path: Path) -> Embeddings:
    """``z`` and ``labels`` are needed; the rest is optional."""
    arrays = read_npz_file(path, ("z", "labels", *_LISTS, *_NOTES))
    lists: dict[str, list[str]] = {
        name: arrays[name].astype(str).tolist() for name in _LISTS if name in arrays
    }
    notes = {name: parse_json(str(arrays[name]), name) for name in _NOTES if name in arrays}
    return _assemble(path, arrays.get("z"), arrays.get("labels"), lists, **notes)


def write_npy(data: Embeddings, path: Path) -> None:
    """Vectors in ``x.npy``, and ``x.csv`` with a line per row: id, label, class, split, role."""
    names = data.class_names or {}
    with replacing(path) as temporary:
        np.save(temporary, data.z.float().numpy())
    columns = {"split": data.split, "role": data.role} | (
        {"sequence": data.sequence} if data.sequence else {}
    )
    rows = zip(data.ids, data.labels.tolist(), *columns.values(), strict=True)
    with (
        replacing(path.with_suffix(".csv")) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(["id", "label", "class", *columns])
        writer.writerows((name, label, names.get(label, ""), *rest) for name, label, *rest in rows)


def read_npy(path: Path) -> Embeddings:
    """The csv next to it needs a column ``label`` (numbers, or names that get numbered)."""
    table = path.with_suffix(".csv")
    if not table.is_file():
        raise FileNotFoundError(f"{path.name} needs its labels in {table}, a csv with a column 'label'")
    return from_columns(table, read_npy_file(path), read_csv(table))


def write_parquet(data: Embeddings, path: Path) -> None:
    """Columns id, label, class, split, role and ``embedding`` (a list of float32 per row)."""
    need("pyarrow", extra="tables")
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = data.class_names or {}
    flat = pa.array(data.z.float().contiguous().numpy().reshape(-1))
    table = pa.table(
        {
            "id": data.ids,
            "label": data.labels.numpy(),
            "class": [names.get(label, "") for label in data.labels.tolist()],
            "split": data.split,
            "role": data.role,
            "embedding": pa.FixedSizeListArray.from_arrays(flat, data.z.shape[1]),
        }
    )
    if data.sequence:
        table = table.append_column("sequence", pa.array(data.sequence))
    table = table.replace_schema_metadata({"meta": json.dumps(data.meta)})
    with replacing(path) as temporary:
        pq.write_table(table, temporary, write_page_checksum=True)


def read_parquet(path: Path) -> Embeddings:
    """``embedding`` (lists of equal length) and ``label`` are needed; the rest is optional."""
    table, columns = read_parquet_columns(path, skip=("embedding",))
    import pyarrow as pa
    import pyarrow.compute as pc

    if "embedding" not in table.column_names:
        raise ValueError(f"{path} lacks the column 'embedding', it has {', '.join(table.column_names)}")
    lists = table["embedding"].combine_chunks()
    if not isinstance(lists, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        raise ValueError(f"{path}: 'embedding' must hold lists of numbers, got {lists.type}")
    lengths = pc.unique(pc.list_value_length(lists))
    if len(lengths) != 1 or lists.null_count:
        raise ValueError(f"{path}: the lists in 'embedding' must have one length in every row")
    z = np.array(lists.flatten().to_numpy(zero_copy_only=False))
    meta = parse_json((table.schema.metadata or {}).get(b"meta", b"{}"), "meta")
    return from_columns(path, z.reshape(len(table), -1), columns, meta)


def from_columns(
    path: Path, z: Any, columns: dict[str, Any], meta: dict[str, Any] | None = None
) -> Embeddings:
    """Embeddings from the columns of a table, of which only ``label`` is needed."""
    if "label" not in columns:
        raise ValueError(f"{path} lacks the column 'label', it has {', '.join(columns) or 'none'}")
    given = [str(label) for label in columns["label"]]
    class_names: dict[int, str] | None = None
    try:
        labels = np.array([int(label) for label in given], dtype=np.int64)
    except (ValueError, OverflowError):  # names, or numbers beyond int64: number them in alphabetical order
        class_names = dict(enumerate(sorted(set(given))))
        numbers = {name: number for number, name in class_names.items()}
        labels = np.array([numbers[name] for name in given], dtype=np.int64)
    if any(columns.get("class", [])):
        named = zip(labels.tolist(), columns["class"], strict=True)
        class_names = (class_names or {}) | {label: str(name) for label, name in named if name}
    lists = {"ids": columns.get("id", columns.get("path", []))}
    lists |= {name: columns[name] for name in _LISTS[1:] if any(columns.get(name, []))}
    lists = {name: [str(value) for value in column] for name, column in lists.items()}
    return _assemble(path, z, labels, lists, class_names=class_names, meta=meta)


def _assemble(
    path: Path,
    z: Any,
    labels: Any,
    lists: dict[str, list[str]],
    *,
    class_names: Any = None,
    meta: Any = None,
) -> Embeddings:
    if z is None or labels is None:
        raise ValueError(
            f"{path} lacks the array {'z' if z is None else 'labels'!r}: both 'z' and 'labels' are needed"
        )
    if z.ndim != 2 or z.dtype.kind != "f" or labels.shape != z.shape[:1] or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{path}: z must be floating (N, D) and labels integer (N,), "
            f"got {z.dtype} {z.shape} and {labels.dtype} {labels.shape}"
        )
    if labels.dtype.kind == "u" and labels.size and int(labels.max()) >= 2**63:
        raise ValueError(f"{path}: labels must fit into int64, got {int(labels.max())}")
    names = {int(label): str(name) for label, name in class_names.items()} if class_names else None
    native = z.astype(z.dtype.newbyteorder("="), copy=False)  # torch has no other byte order
    vectors, numbers = torch.from_numpy(native), torch.from_numpy(labels.astype(np.int64))
    return Embeddings(vectors, numbers, class_names=names, meta=meta or {}, **lists)


def _named(name: str, tensors: dict[str, Tensor], header: str) -> list[str]:
    """The strings that the numbers of a column stand for."""
    options, numbers = json.loads(header), tensors[name]
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
        raise TypeError(f"the header's names of {name} must be a list of strings")
    if numbers.dtype != torch.uint8 or numbers.ndim != 1:
        raise TypeError(f"{name} must be uint8 numbers in one dimension, got {numbers.dtype}")
    return [options[number] for number in numbers.tolist()]


def pack_strings(name: str, strings: Sequence[str]) -> dict[str, Tensor]:
    """A list of strings as two tensors, as described at the top."""
    encoded = [text.encode() for text in strings]
    ends = torch.tensor([0, *map(len, encoded)], dtype=torch.int64).cumsum(0)
    joined = bytearray(b"".join(encoded))
    flat = torch.frombuffer(joined, dtype=torch.uint8) if joined else torch.empty(0).byte()
    return {f"{name}.bytes": flat, f"{name}.ends": ends}


def unpack_strings(name: str, tensors: dict[str, Tensor]) -> list[str]:
    """The inverse of ``pack_strings``."""
    joined, ends = tensors[f"{name}.bytes"].numpy().tobytes(), tensors[f"{name}.ends"]
    if ends.dtype != torch.int64 or ends.ndim != 1:
        raise TypeError(f"{name}.ends must be int64 numbers in one dimension, got {ends.dtype}")
    if ends[-1:].tolist() != [len(joined)] or int(ends[0]) != 0 or bool((ends.diff() < 0).any()):
        raise ValueError(f"{name}.ends must rise from 0 to the {len(joined)} bytes there are")
    return [joined[start:end].decode() for start, end in pairwise(ends.tolist())]


WRITERS: dict[str, Callable[[Embeddings, Path], None]] = {
    ".safetensors": write_safetensors,
    ".npz": write_npz,
    ".npy": write_npy,
    ".parquet": write_parquet,
}
READERS: dict[str, Callable[[Path], Embeddings]] = {
    ".safetensors": read_safetensors,
    ".npz": read_npz,
    ".npy": read_npy,
    ".parquet": read_parquet,
}
