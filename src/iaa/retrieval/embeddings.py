"""The embeddings file: vectors, labels, names and where they came from, in one ``.safetensors``.

Layout, readable with ``safetensors.safe_open`` alone: ``z`` (N, D) and ``labels`` (N,) int64; ``split`` and
``role`` (N,) uint8, positions in the header's JSON lists ``splits`` and ``roles``; every list of strings as
UTF-8 bytes in one uint8 tensor and the (N + 1,) int64 positions between them: ``ids.bytes`` and ``ids.ends``,
likewise ``class_names`` (with ``class_labels``, the labels they name). The header also holds ``format``, and
``meta`` as JSON.
"""

import csv
import json
import os
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from iaa.errors import unknown
from iaa.retrieval.input_checks import as_labels, as_vectors

FORMAT = "iaa-embeddings-1"
SPLITS = ("train", "val", "test")
ROLES = ("both", "query", "gallery")


@dataclass(frozen=True)
class Embeddings:
    """Vectors of a whole data set and all that scoring, analysis, search and reports need to know of them."""

    z: Float[Tensor, "n d"]
    labels: Int64[Tensor, " n"]
    ids: list[str] = field(default_factory=list)
    """A name or path per row; the row numbers if none are given."""
    class_names: dict[int, str] | None = None
    split: list[str] = field(default_factory=list)
    """``train``, ``val`` or ``test`` per row; all ``test`` if none are given."""
    role: list[str] = field(default_factory=list)
    """``both`` (leave-one-out), ``query`` or ``gallery`` per row; all ``both`` if none are given."""
    meta: dict[str, Any] = field(default_factory=dict)
    """Identity of model and data, versions: anything JSON can hold."""

    def __post_init__(self) -> None:
        size = len(self.z)
        as_labels(self.labels, size)
        fallbacks = {
            "ids": [str(row) for row in range(size)],
            "split": ["test"] * size,
            "role": ["both"] * size,
        }
        for name, fallback in fallbacks.items():
            given = list(getattr(self, name)) or fallback
            if len(given) != size:
                raise ValueError(f"{name} must have {size} entries, one per vector, got {len(given)}")
            object.__setattr__(self, name, given)
        for name, options in (("split", SPLITS), ("role", ROLES)):
            for wrong in set(getattr(self, name)) - set(options):
                raise unknown(name, wrong, options)

    def __len__(self) -> int:
        return len(self.z)

    def class_name(self, label: int) -> str:
        """The name of a class; its number if it has no name."""
        return (self.class_names or {}).get(label, str(label))

    def distinct_names(self) -> list[str]:
        """The class of every row by name, with its number where classes share a name: they stay apart."""
        known = self.class_names or {}
        names = {label: known.get(label, str(label)) for label in self.labels.unique().tolist()}
        uses = Counter(names.values())
        names = {label: name if uses[name] == 1 else f"{name} ({label})" for label, name in names.items()}
        return [names[label] for label in self.labels.tolist()]

    def rows(self, keep: Tensor) -> "Embeddings":
        """Only these rows: a boolean mask or row numbers."""
        index = keep.nonzero()[:, 0] if keep.dtype == torch.bool else keep
        ids, split, role = ([names[i] for i in index.tolist()] for names in (self.ids, self.split, self.role))
        return Embeddings(self.z[index], self.labels[index], ids, self.class_names, split, role, self.meta)

    def where(self, *, split: str | None = None, role: str | None = None) -> Tensor:
        """Mask of the rows of a split and of a role; rows of role ``both`` are queries and gallery alike."""
        keep = torch.ones(len(self), dtype=torch.bool)
        if split is not None:
            if split not in SPLITS:
                raise unknown("split", split, SPLITS)
            keep &= torch.tensor([one == split for one in self.split])
        if role is not None:
            keep &= torch.tensor([one in (role, "both") for one in self.role])
        return keep

    def save(self, path: str | Path) -> None:
        """Write ``.safetensors``, ``.npz``, ``.npy`` (+ ``.csv``) or ``.parquet``; whole or not at all."""
        from iaa.retrieval.formats import WRITERS

        path = Path(path)
        if path.suffix not in WRITERS:
            raise unknown("the file's ending", path.suffix, WRITERS)
        WRITERS[path.suffix](self, path)

    @classmethod
    def load(cls, path: str | Path) -> "Embeddings":
        """Read what ``save`` writes, or vectors of any origin in those formats."""
        from iaa.retrieval.formats import READERS

        path = Path(path)
        if path.suffix not in READERS:
            raise unknown("the file's ending", path.suffix, READERS)
        if not path.is_file():
            raise FileNotFoundError(f"no embeddings file at {path}")
        try:
            found = READERS[path.suffix](path)
            as_vectors(found.z)
        except (KeyError, IndexError, TypeError, AttributeError, csv.Error, zlib.error) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path} is damaged: {reason}") from error
        except ValueError as error:  # also bad JSON, and bytes that are no UTF-8
            text = str(error)
            raise ValueError(text if text.startswith(str(path)) else f"{path}: {text}") from error
        return found


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Write beside the target, then rename over it: neither a reader nor a crash is left with half a file.

    What the disk refuses is told of the target, not of the temporary file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        try:
            write(Path(name))
            os.chmod(name, 0o644)
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)
    except FileExistsError as error:
        raise OSError(f"cannot write {path}: {path.parent} is no folder") from error
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error


def write_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """One ``.safetensors``, whole or not at all; the same content gives the same bytes."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    def write(temporary: Path) -> None:
        try:
            save_file(tensors, temporary, header)
        except SafetensorError as error:
            raise OSError(str(error).removeprefix("Error while serializing: ")) from error
        _sort_header(temporary)

    replace_file(path, write)


def _sort_header(path: Path) -> None:
    """The library writes the header's entries in an order of chance: put them in that of the alphabet."""
    with open(path, "r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        ordered = {"__metadata__": dict(sorted(header.pop("__metadata__", {}).items())), **header}
        text = json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= size:  # always, unless the library changes how it writes: then order is no loss
            file.seek(8)
            file.write(text.ljust(size))


def write_safetensors(data: Embeddings, path: Path) -> None:
    """The project's own format, as described at the top."""
    tensors = {"z": data.z.contiguous(), "labels": data.labels.contiguous()}
    tensors["split"] = torch.tensor([SPLITS.index(one) for one in data.split], dtype=torch.uint8)
    tensors["role"] = torch.tensor([ROLES.index(one) for one in data.role], dtype=torch.uint8)
    tensors |= _pack("ids", data.ids)
    if data.class_names is not None:
        tensors["class_labels"] = torch.tensor(list(data.class_names), dtype=torch.int64)
        tensors |= _pack("class_names", list(data.class_names.values()))
    header = {
        "format": FORMAT,
        "splits": json.dumps(SPLITS),
        "roles": json.dumps(ROLES),
        "meta": json.dumps(data.meta),
    }
    write_tensors(path, tensors, header)


def read_safetensors(path: Path) -> Embeddings:
    """Memory-mapped: ``z`` is read from disk as it is used."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise ValueError(f"{path} is no embeddings file: its header lacks format = {FORMAT!r}")
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise ValueError(f"{path} is cut short or no safetensors file: {error}") from error
    splits, roles = json.loads(header["splits"]), json.loads(header["roles"])
    names = None
    if "class_labels" in found:
        words = _unpack("class_names", found)
        names = dict(
            zip(as_labels(found["class_labels"], len(words), "class_labels").tolist(), words, strict=True)
        )
    return Embeddings(
        found["z"],
        as_labels(found["labels"], len(found["z"])),
        _unpack("ids", found),
        names,
        [splits[i] for i in found["split"].tolist()],
        [roles[i] for i in found["role"].tolist()],
        read_object(header["meta"], "meta"),
    )


def read_object(text: str | bytes, name: str) -> dict[str, Any]:
    """JSON that must hold an object."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"{name} must be an object, got {found!r}")
    return found


def _pack(name: str, words: Sequence[str]) -> dict[str, Tensor]:
    encoded = [word.encode() for word in words]
    ends = torch.tensor([0, *map(len, encoded)], dtype=torch.int64).cumsum(0)
    joined = (
        torch.frombuffer(bytearray(b"".join(encoded)), dtype=torch.uint8)
        if ends[-1]
        else torch.empty(0).byte()
    )
    return {f"{name}.bytes": joined, f"{name}.ends": ends}


def _unpack(name: str, tensors: dict[str, Tensor]) -> list[str]:
    joined, ends = tensors[f"{name}.bytes"].numpy().tobytes(), tensors[f"{name}.ends"].tolist()
    if ends[-1:] != [len(joined)]:
        raise ValueError(f"{name}.ends must end at the {len(joined)} bytes there are, got {ends[-1:]}")
    return [joined[start:end].decode() for start, end in pairwise(ends)]
