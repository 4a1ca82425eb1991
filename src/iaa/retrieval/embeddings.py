"""Embeddings of a whole data set: vectors, labels, names and where they came from."""

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from iaa.errors import unknown
from iaa.retrieval.input_checks import as_labels, as_vectors

SPLITS = ("train", "val", "test")
ROLES = ("both", "query", "gallery")


@dataclass(frozen=True)
class Embeddings:
    """Vectors of a data set with all that scoring, analysis, search and reports need to know about them."""

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
    sequence: list[str] = field(default_factory=list)
    """Where images come in sequences, the sequence of each row: hits in the query's own one are ignored."""

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
        if self.sequence and len(self.sequence) != size:
            raise ValueError(f"sequence must have {size} entries, one per vector, got {len(self.sequence)}")
        for name, options in (("split", SPLITS), ("role", ROLES)):
            for wrong in set(getattr(self, name)) - set(options):
                raise unknown(name, wrong, options)

    def __repr__(self) -> str:
        """On one line: not every row of it."""
        classes = len(self.labels.unique())
        return f"Embeddings({len(self):,} vectors of {classes:,} classes, dim={self.z.shape[1]})"

    def __len__(self) -> int:
        return len(self.z)

    def class_name(self, label: int) -> str:
        """The name of a class; its number if it has no name."""
        return (self.class_names or {}).get(label, str(label))

    def distinct_names(self) -> list[str]:
        """The class name of every row; classes that share a name get their number appended."""
        known = self.class_names or {}
        names = {label: known.get(label, str(label)) for label in self.labels.unique().tolist()}
        uses = Counter(names.values())
        names = {label: name if uses[name] == 1 else f"{name} ({label})" for label, name in names.items()}
        return [names[label] for label in self.labels.tolist()]

    def rows(self, keep: Tensor) -> "Embeddings":
        """Only these rows: a boolean mask or row numbers."""
        index = keep.nonzero()[:, 0] if keep.dtype == torch.bool else keep
        picked = index.tolist()
        columns: dict[str, Any] = {
            name: [getattr(self, name)[row] for row in picked] if getattr(self, name) else []
            for name in ("ids", "split", "role", "sequence")
        }
        return replace(self, z=self.z[index], labels=self.labels[index], **columns)

    def where(self, *, split: str | None = None, role: str | None = None) -> Tensor:
        """Mask of the rows of a split and of a role; rows of role ``both`` are queries and gallery alike."""
        keep = torch.ones(len(self), dtype=torch.bool)
        if split is not None:
            if split not in SPLITS:
                raise unknown("split", split, SPLITS)
            keep &= torch.tensor([name == split for name in self.split])
        if role is not None:
            keep &= torch.tensor([name in (role, "both") for name in self.role])
        return keep

    def save(self, path: str | Path) -> None:
        """Write ``.safetensors``, ``.npz``, ``.npy`` (+ ``.csv``) or ``.parquet`` atomically."""
        from iaa.retrieval.formats import WRITERS

        path = Path(path)
        if path.suffix not in WRITERS:
            raise unknown("the file's ending", path.suffix, WRITERS)
        WRITERS[path.suffix](self, path)

    @classmethod
    def load(cls, path: str | Path) -> "Embeddings":
        """Read what ``save`` writes, or vectors of any origin in those formats; errors name the file."""
        from iaa.retrieval.formats import READERS

        path = Path(path)
        if path.suffix not in READERS:
            raise unknown("the file's ending", path.suffix, READERS)
        if not path.is_file():
            raise FileNotFoundError(f"no embeddings file at {path}")
        try:
            data = READERS[path.suffix](path)
            as_vectors(data.z)
        except (KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path} is damaged: {reason}") from error
        except ValueError as error:  # also invalid JSON and invalid UTF-8
            message = str(error)
            raise ValueError(message if str(path) in message else f"{path}: {message}") from error
        return data
