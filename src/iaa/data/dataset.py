"""``Dataset``, a table of path, label, split and role; ``ClassSplit``, which classes are in which part."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Strings = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]

SPLITS = ("train", "val", "test")
_COLUMNS = ("paths", "labels", "split", "role", "boxes", "sequence", "rows")


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table of images. Class ids count the classes of ``train`` first, then ``val``, then ``test``.

    So the training ids are 0 … C-1, and two splits share an id only where they share the class.
    """

    name: str
    paths: Strings
    labels: Ids
    class_names: tuple[str, ...]
    """The original labels: ``class_names[id]``."""
    split: Strings
    """``train``, ``val`` or ``test`` per image."""
    role: Strings
    """``both`` (every other image is the gallery), ``query`` or ``gallery`` per image."""
    ks: tuple[int, ...] = (1, 2, 4, 8)
    boxes: npt.NDArray[np.float64] | None = None
    """Left, top, right, bottom in pixels per image (NaN: the whole image), where the table gives them."""
    sequence: Strings | None = None
    """Name of the sequence per image (empty: none): images of one sequence do not answer each other."""
    rows: Ids | None = None
    """Row numbers in the file of precomputed vectors; None for images."""

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, rows: npt.ArrayLike) -> "Dataset":
        """Some rows (positions or a mask); class ids stay what they were."""
        columns = {key: getattr(self, key) for key in _COLUMNS}
        chosen = np.asarray(rows)
        return replace(self, **{key: column[chosen] for key, column in columns.items() if column is not None})

    def part(self, split: str) -> "Dataset":
        """The images of one split (``train``, ``val`` or ``test``); it may be empty."""
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}")
        return self.take(self.split == split)

    def class_sizes(self) -> Ids:
        """Images per class, over the classes that occur here, ordered by class id."""
        return np.unique(self.labels, return_counts=True)[1].astype(np.int64)

    def used_names(self) -> list[str]:
        """Names of the classes that occur here, ordered by class id."""
        return [self.class_names[label] for label in np.unique(self.labels)]

    def per_class(self, number: int, *, seed: int = 0) -> "Dataset":
        """At most ``number`` training images per class (Table XI), drawn by ``seed``; the rest stays."""
        if number < 1:
            raise ValueError(f"per_class must be at least 1, got {number}")
        shuffled = np.random.default_rng(seed).permutation(len(self))
        order = shuffled[np.argsort(self.labels[shuffled], kind="stable")]
        order = order[self.split[order] == "train"]
        chosen = _rank_in_group(self.labels[order]) < number
        return self.take(np.sort(np.concatenate([order[chosen], np.flatnonzero(self.split != "train")])))

    def hold_out(self, share: float, *, seed: int = 0) -> "Dataset":
        """Move a share of the training classes, drawn by ``seed``, to ``val``; classes are renumbered."""
        classes = np.unique(self.labels[self.split == "train"])
        chosen = draw_classes(classes, share, seed=seed)
        split = self.split.copy()
        split[np.isin(self.labels, chosen) & (split == "train")] = "val"
        return self.with_split(split)

    def draw_gallery(self, *, seed: int = 0) -> "Dataset":
        """One image of every test class, drawn by ``seed``, becomes the gallery; the others are queries."""
        rows = np.random.default_rng(seed).permutation(np.flatnonzero(self.split == "test"))
        rows = rows[np.argsort(self.labels[rows], kind="stable")]
        role = self.role.copy()
        role[rows] = np.where(_rank_in_group(self.labels[rows]) == 0, "gallery", "query")
        return replace(self, role=role)

    def with_split(self, split: Strings) -> "Dataset":
        """The same images with another split; classes are renumbered."""
        names = np.asarray(self.class_names, dtype=object)[self.labels]
        same: dict[str, Any] = {
            key: getattr(self, key) for key in ("role", "ks", "boxes", "sequence", "rows")
        }
        return make(self.name, self.paths, names, split, order=self.class_names, **same)


def make(
    name: str,
    paths: Sequence[str] | Strings,
    labels: Sequence[object] | Strings,
    split: Sequence[str] | Strings,
    *,
    role: Sequence[str] | Strings | None = None,
    ks: tuple[int, ...] = (1, 2, 4, 8),
    boxes: npt.NDArray[np.float64] | None = None,
    sequence: Strings | None = None,
    rows: Ids | None = None,
    order: Sequence[str] | None = None,
) -> Dataset:
    """A dataset from columns; labels of any type are kept as text, so that no id is rounded.

    Within a split, ids follow the ``order`` of the class names; without it, the alphabet or the numbers.

    >>> make("mine", ["a.png", "b.png"], [16777217, 16777216], ["train", "train"]).class_names
    ('16777216', '16777217')
    """
    texts = np.array([str(label) for label in labels], dtype=object)
    splits = np.asarray(split, dtype="<U5")
    rank = np.select([splits == part for part in SPLITS], range(len(SPLITS)), default=-1)
    if not len(texts):
        raise ValueError(f"{name} has no images")
    if (rank < 0).any():
        raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {splits[rank < 0][0]!r}")
    names, inverse = np.unique(texts, return_inverse=True)
    first = np.full(len(names), len(SPLITS))
    np.minimum.at(first, inverse, rank)
    whole = all(text.isdecimal() for text in names)
    positions = {text: position for position, text in enumerate(order or ())}
    keys = [(first[i], positions.get(text, int(text) if whole else 0), text) for i, text in enumerate(names)]
    by_key = sorted(range(len(names)), key=keys.__getitem__)
    new_id = np.empty(len(names), dtype=np.int64)
    new_id[by_key] = np.arange(len(names))
    roles = np.full(len(texts), "both", dtype="<U7") if role is None else np.asarray(role, dtype="<U7")
    return Dataset(
        name,
        np.asarray(paths, dtype=object),
        new_id[inverse],
        tuple(str(names[i]) for i in by_key),
        splits,
        roles,
        ks,
        boxes,
        sequence,
        rows,
    )


def draw_classes(classes: Ids, share: float, *, seed: int) -> Ids:
    """A share of the classes; of four or more at least two, and at least two are left.

    One class alone can neither be trained on nor tested: all neighbours are right.
    """
    if not 0 < share < 1:
        raise ValueError(f"the share of held-out classes must lie between 0 and 1, got {share}")
    if len(classes) < 2:
        raise ValueError(f"a class-disjoint split needs at least 2 classes, got {len(classes)}")
    least = 2 if len(classes) > 3 else 1
    number = min(max(round(share * len(classes)), least), len(classes) - least)
    return np.random.default_rng(seed).permutation(classes)[:number]


def _rank_in_group(groups: Ids) -> Ids:
    """0, 1, 2 … within every run of equal neighbours."""
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]]) if len(groups) else np.array([], int)
    return np.arange(len(groups)) - np.repeat(starts, np.diff(np.r_[starts, len(groups)]))


@dataclass(frozen=True)
class ClassSplit:
    """Names of the classes of every part, kept with a run (``classes.json``) so that growing data moves none.

    Data that brings its own split may have a class in two parts.
    """

    train: tuple[str, ...] = ()
    val: tuple[str, ...] = ()
    test: tuple[str, ...] = ()

    @classmethod
    def of(cls, *datasets: Dataset) -> "ClassSplit":
        """The classes of datasets as they are split now."""
        parts = ({name for data in datasets for name in data.part(split).used_names()} for split in SPLITS)
        return cls(*(tuple(sorted(names)) for names in parts))

    def knows(self, dataset: Dataset) -> bool:
        """Whether a dataset has any of these classes; if not, it has nothing to do with the run."""
        return not {*self.train, *self.val, *self.test}.isdisjoint(dataset.class_names)

    def apply(self, dataset: Dataset) -> Dataset:
        """The dataset with every known class in the part it was in; new classes are test classes.

        An image keeps the part that the data names for it if its class was in that part before.
        """
        known = [set(getattr(self, part)) for part in SPLITS]
        allowed = np.array([[name in names for names in known] for name in dataset.class_names])
        allowed[~allowed.any(1), SPLITS.index("test")] = True
        named = np.select([dataset.split == part for part in SPLITS], range(len(SPLITS)))
        first = np.array(SPLITS)[allowed.argmax(1)]
        return dataset.with_split(
            np.where(allowed[dataset.labels, named], dataset.split, first[dataset.labels])
        )

    def missing(self, *datasets: Dataset) -> dict[str, list[str]]:
        """The classes of every part that have no images any more."""
        present = {name for dataset in datasets for name in dataset.used_names()}
        gone = {part: sorted({*getattr(self, part)} - present) for part in SPLITS}
        return {part: names for part, names in gone.items() if names}
