"""Which classes a run trains, validates and tests on: kept with the run, so that growing data moves none."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from iaa.data.dataset import SPLITS, Dataset


@dataclass(frozen=True)
class ClassSplit:
    """Names of the classes of every part; data that brings its own split may name a class in two of them."""

    train: tuple[str, ...] = ()
    val: tuple[str, ...] = ()
    test: tuple[str, ...] = ()

    @classmethod
    def of(cls, *datasets: Dataset) -> "ClassSplit":
        """The classes of datasets as they are split now."""
        names: dict[str, set[str]] = {part: set() for part in SPLITS}
        for dataset in datasets:
            for part in SPLITS:
                used = np.unique(dataset.labels[dataset.split == part])
                names[part].update(dataset.class_names[label] for label in used)
        return cls(**{part: tuple(sorted(found)) for part, found in names.items()})

    @classmethod
    def from_json(cls, content: Any, source: str) -> "ClassSplit":
        """The inverse of ``to_json``; anything else is a ``ValueError`` that names the source."""
        parts: dict[str, tuple[str, ...]] = {}
        for part in SPLITS:
            names = content.get(part) if isinstance(content, dict) else None
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise ValueError(f"{source} is damaged: it must list the {part} classes")
            parts[part] = tuple(names)
        return cls(**parts)

    def to_json(self) -> dict[str, Any]:
        """As ``classes.json`` of a run."""
        return asdict(self)

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
        at = np.select([dataset.split == part for part in SPLITS], range(len(SPLITS)))
        kept = allowed[dataset.labels, at]
        first = np.array(SPLITS)[allowed.argmax(1)]
        return dataset.with_split(np.where(kept, dataset.split, first[dataset.labels]))

    def missing(self, *datasets: Dataset) -> dict[str, list[str]]:
        """The classes of every part that have no images any more."""
        now = {dataset.class_names[label] for dataset in datasets for label in np.unique(dataset.labels)}
        gone = {part: sorted({*getattr(self, part)} - now) for part in SPLITS}
        return {part: names for part, names in gone.items() if names}
