"""What belongs into a gallery: the images of folders, tables, benchmarks, and vectors made before."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from iaa.config import Config
from iaa.data import Dataset, load
from iaa.data.custom import table
from iaa.data.file_listing import folders, images_in, images_under
from iaa.errors import unknown
from iaa.provenance import ImageRef, fragment
from iaa.retrieval.embeddings import Embeddings

KINDS = ("folder:DIR", "table:FILE", "FILE.safetensors")
_WHOLE: npt.NDArray[np.float64] = np.full(4, np.nan)
_PARTS = frozenset(("train", "val", "validation", "test", "query", "gallery"))


@dataclass(frozen=True)
class Listing:
    """Names, classes and splits; a name is an absolute path, with the box as a media fragment."""

    ids: list[str]
    classes: list[str]
    split: list[str]

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Iterable[int]) -> "Listing":
        """Some rows, in the order given."""
        at = list(rows)
        return Listing(*([names[row] for row in at] for names in (self.ids, self.classes, self.split)))


def list_source(source: str) -> Listing:
    """Everything a source names: ``folder:DIR``, ``table:FILE`` or ``image:FILE``."""
    kind, _, place = source.partition(":")
    path = Path(os.path.abspath(Path(place).expanduser()))
    if kind == "image":
        if not path.is_file():
            raise FileNotFoundError(f"there is no image {path}")
        return Listing([str(path)], [path.parent.name], ["test"])
    if kind == "folder":
        return _folder(path)
    if kind == "table":
        return from_dataset(table(path, root=None))
    raise unknown("the gallery", source, KINDS)


def own_images(config: Config) -> Listing:
    """All images of a run's data, those of the training part as well as the others."""
    split = config.split
    if config.vectors_file is not None:
        return own_vectors(config)[0]
    size = split.size or ("large" if config.data == "vehicleid" else None)
    options = {"seed": config.seed, "test_share": split.test_share, "protocol": split.protocol}
    whole = load(config.data, root=config.root, size=size, **options)  # type: ignore[arg-type]
    return from_dataset(whole.hold_out(split.val_classes, seed=config.seed) if split.val_classes else whole)


def from_dataset(dataset: Dataset) -> Listing:
    """Every image once, whatever the number of rows it stands in."""
    boxes = np.full((len(dataset), 4), np.nan) if dataset.boxes is None else dataset.boxes
    names = [os.path.abspath(path) + fragment(box) for path, box in zip(dataset.paths, boxes, strict=True)]
    classes = [dataset.class_names[label] for label in dataset.labels.tolist()]
    return distinct([Listing(names, classes, [str(part) for part in dataset.split])])


def distinct(listings: Iterable[Listing]) -> Listing:
    """All of them together, a name once: where it stands first."""
    ids: dict[str, tuple[str, str]] = {}
    for listing in listings:
        for name, label, split in zip(listing.ids, listing.classes, listing.split, strict=True):
            ids.setdefault(name, (label, split))
    return Listing(list(ids), [label for label, _ in ids.values()], [split for _, split in ids.values()])


def image(name: str, root: str | None = None) -> ImageRef:
    """The file and the box that a name stands for; names that are not absolute lie below ``root``."""
    if "#xywh=" not in name:  # nearly always
        return ImageRef(os.path.join(root, name) if root else name, _WHOLE)
    found = re.fullmatch(r"(.*)#xywh=([-\d.e+]+),([-\d.e+]+),([-\d.e+]+),([-\d.e+]+)", name, re.DOTALL)
    path = found[1] if found else name
    box = _WHOLE
    if found:
        left, top, width, height = (float(found[place]) for place in range(2, 6))
        box = np.array([left, top, left + width, top + height])
    return ImageRef(os.path.join(root, path) if root else path, box)


def _folder(root: Path) -> Listing:
    """The class is the sub-folder's name, below parts such as ``train/`` and ``test/``, else the folder's."""
    if not root.is_dir():
        raise FileNotFoundError(f"folder {root} does not exist")
    inner = folders(root)
    parts = inner if inner and all(path.name.lower() in _PARTS for path in inner) else []
    homes = [(root.name, images_in(place)) for place in (root, *parts)]
    for part in parts or [root]:
        homes += [(home.name, images_under(home)) for home in folders(part)]
    paths = [path for _, found in homes for path in found]
    classes = [name for name, found in homes for _ in found]
    if not paths:
        raise FileNotFoundError(f"folder {root} holds no images")
    return Listing([os.path.abspath(path) for path in paths], classes, ["test"] * len(paths))


def with_names(data: Embeddings, file: Path) -> Embeddings:
    """Rows that have numbers for names get the file's as well: row 3 of another file is another one."""
    if data.ids != [str(row) for row in range(len(data))]:
        return data
    return replace(data, ids=[f"{os.path.abspath(file)}#{row}" for row in data.ids])


def own_vectors(config: Config) -> tuple[Listing, Tensor]:
    """The vectors a head was trained on, and what they are called."""
    file = Path(config.data.partition(":")[2]).expanduser()
    data = with_names(Embeddings.load(file), file)
    classes = data.distinct_names()
    root = data.meta.get("root")
    ids = [os.path.join(str(root), name) if root else name for name in data.ids]
    if len(set(ids)) < len(ids):
        raise ValueError(f"{file} names a row twice: a gallery needs every id once")
    return Listing(ids, classes, data.split), data.z
