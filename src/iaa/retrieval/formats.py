"""Embeddings in other people's formats: ``.npz``, ``.npy`` with a ``.csv``, Parquet. Never pickle."""

import csv
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from iaa.errors import need
from iaa.retrieval.embeddings import (
    Embeddings,
    read_object,
    read_safetensors,
    replace_file,
    write_safetensors,
)


def write_npz(data: Embeddings, path: Path) -> None:
    """Arrays ``z``, ``labels``, ``ids``, ``split``, ``role``, ``class_names`` and ``meta`` (both as JSON)."""
    columns: dict[str, Any] = {
        "z": data.z.float().numpy(),
        "labels": data.labels.numpy(),
        "ids": np.array(data.ids, dtype=str),
        "split": np.array(data.split),
        "role": np.array(data.role),
        "class_names": np.array(json.dumps(_names(data))),
        "meta": np.array(json.dumps(data.meta)),
    }
    replace_file(path, lambda temporary: np.savez(temporary, **columns))


def read_npz(path: Path) -> Embeddings:
    """``z`` and ``labels`` are needed; the rest is optional."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, EOFError, OSError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is cut short, holds pickled objects, or is no npz file: {error}") from error
    strings = {name: found[name].astype(str).tolist() for name in ("ids", "split", "role") if name in found}
    notes = {name: read_object(str(found[name]), name) for name in ("class_names", "meta") if name in found}
    return _assemble(path, found.get("z"), found.get("labels"), strings, **notes)


def write_npy(data: Embeddings, path: Path) -> None:
    """Vectors in ``x.npy``, and ``x.csv`` with a line per row: id, label, class, split, role."""
    names = data.class_names or {}

    def table(temporary: Path) -> None:
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "label", "class", "split", "role"])
            for row in zip(data.ids, data.labels.tolist(), data.split, data.role, strict=True):
                writer.writerow([row[0], row[1], names.get(row[1], ""), *row[2:]])

    replace_file(path, lambda temporary: np.save(temporary, data.z.float().numpy()))
    replace_file(path.with_suffix(".csv"), table)


def read_npy(path: Path) -> Embeddings:
    """Vectors stay memory-mapped; the csv needs a column ``label`` (numbers, or names that get numbered)."""
    table = path.with_suffix(".csv")
    if not table.is_file():
        raise FileNotFoundError(f"{path.name} needs its labels in {table}, a csv with a column 'label'")
    try:
        # copy-on-write: torch wants memory it could write to, the file stays as it is
        z = np.load(path, mmap_mode="c", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is cut short, holds pickled objects, or is no npy file: {error}") from error
    with table.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    columns = {name: [line[name] or "" for line in lines] for name in (lines[0] if lines else {}) if name}
    return _from_columns(table, z, columns)


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
            "class": [names.get(one, "") for one in data.labels.tolist()],
            "split": data.split,
            "role": data.role,
            "embedding": pa.FixedSizeListArray.from_arrays(flat, data.z.shape[1]),
        }
    )
    table = table.replace_schema_metadata({"meta": json.dumps(data.meta)})
    replace_file(path, lambda temporary: pq.write_table(table, temporary))


def read_parquet(path: Path) -> Embeddings:
    """``embedding`` (lists of equal length) and ``label`` are needed; the rest is optional."""
    need("pyarrow", extra="tables")
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} is cut short or no Parquet file: {error}") from error
    columns = {name: table[name].to_pylist() for name in table.column_names if name != "embedding"}
    if "embedding" not in table.column_names:
        raise ValueError(f"{path} lacks the column 'embedding', it has {', '.join(table.column_names)}")
    lists = table["embedding"].combine_chunks()
    z = lists.flatten().to_numpy(zero_copy_only=False)
    lengths = pc.unique(pc.list_value_length(lists))
    if len(lengths) != 1 or lists.null_count:
        raise ValueError(f"{path}: the lists in 'embedding' must have one length in every row")
    meta = (table.schema.metadata or {}).get(b"meta", b"{}")
    return _from_columns(path, np.array(z).reshape(len(table), -1), columns, read_object(meta, "meta"))


def _from_columns(
    path: Path, z: Any, columns: dict[str, list[Any]], meta: dict[str, Any] | None = None
) -> Embeddings:
    if "label" not in columns:
        raise ValueError(f"{path} lacks the column 'label', it has {', '.join(columns) or 'none'}")
    words = [str(word) for word in columns["label"]]
    try:
        labels, names = [int(word) for word in words], None
    except ValueError:  # names: number them in alphabetical order
        ordered = {word: number for number, word in enumerate(sorted(set(words)))}
        labels, names = [ordered[word] for word in words], {number: word for word, number in ordered.items()}
    if any(columns.get("class", [])):
        named = zip(labels, columns["class"], strict=True)
        names = (names or {}) | {label: str(word) for label, word in named if word}
    strings = {"ids": columns.get("id", columns.get("path", []))}
    strings |= {name: columns[name] for name in ("split", "role") if any(columns.get(name, []))}
    strings = {name: [str(word) for word in column] for name, column in strings.items()}
    return _assemble(path, z, np.array(labels, dtype=np.int64), strings, class_names=names, meta=meta)


def _assemble(
    path: Path,
    z: Any,
    labels: Any,
    strings: dict[str, list[str]],
    *,
    class_names: Any = None,
    meta: Any = None,
) -> Embeddings:
    if z is None or labels is None:
        raise ValueError(
            f"{path} lacks the array {'z' if z is None else 'labels'!r}: both 'z' and 'labels' are needed"
        )
    names = {int(number): name for number, name in class_names.items()} if class_names else None
    if z.ndim != 2 or z.dtype.kind != "f" or labels.shape != z.shape[:1] or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{path}: z must be floating (N, D) and labels integer (N,), "
            f"got {z.dtype} {z.shape} and {labels.dtype} {labels.shape}"
        )
    vectors, numbers = torch.from_numpy(z), torch.from_numpy(labels.astype(np.int64))
    return Embeddings(vectors, numbers, class_names=names, meta=meta or {}, **strings)


def _names(data: Embeddings) -> dict[str, str]:
    return {str(number): name for number, name in (data.class_names or {}).items()}


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
