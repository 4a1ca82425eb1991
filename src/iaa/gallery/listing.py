"""What a gallery is made of at one moment: ids, classes and splits of images in folders, tables and runs."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Int64
from torch import Tensor

from iaa.data import Dataset, load
from iaa.data.custom import table
from iaa.data.dataset import make
from iaa.data.file_listing import folders, images_in, images_under
from iaa.data.image_ref import ImageRef, RowRef, image_path
from iaa.errors import unknown
from iaa.files import NO_FILE, Stamp, file_stamp
from iaa.provenance import image_refs
from iaa.retrieval.embeddings import Embeddings
from iaa.runs import Run

KINDS = ("folder:DIR", "table:FILE", "FILE.safetensors")
_SPLIT_FOLDERS = frozenset(("train", "val", "validation", "test", "query", "gallery"))

IMPORTED: Stamp = (-2, -2)
"""The stamp of an imported vector, which stays whatever happens to its image."""


@dataclass(frozen=True)
class Listing:
    """Ids, classes and splits, one per image; an id is a reference with an absolute path."""

    ids: list[str]
    classes: list[str]
    split: list[str]

    def __len__(self) -> int:
        return len(self.ids)

    def numbered(self) -> tuple[Int64[Tensor, " n"], dict[int, str]]:
        """A class number per row, in alphabetical order of the classes, and the name of each number."""
        names = sorted(set(self.classes))
        numbers = {name: number for number, name in enumerate(names)}
        labels = torch.tensor([numbers[name] for name in self.classes], dtype=torch.int64)
        return labels, dict(enumerate(names))

    def columns(self) -> dict[str, tuple[str, str]]:
        """Class and split by id."""
        return dict(zip(self.ids, zip(self.classes, self.split, strict=True), strict=True))

    def take(self, rows: Iterable[int]) -> "Listing":
        """Some rows, in the order given."""
        chosen = list(rows)
        return Listing(*([values[row] for row in chosen] for values in (self.ids, self.classes, self.split)))


def list_source(source: str) -> Listing:
    """The images of ``folder:DIR``, ``table:FILE`` or ``image:FILE``."""
    kind, _, location = source.partition(":")
    path = Path(os.path.abspath(Path(location).expanduser()))
    if kind == "image":
        if not path.is_file():
            raise FileNotFoundError(f"there is no image {path}")
        return Listing([str(path)], [path.parent.name], ["test"])
    if kind == "folder":
        return _list_folder(path)
    if kind == "table":
        return list_dataset(table(path, root=None))
    raise unknown("the gallery", source, KINDS)


def own_images(run: Run) -> Listing:
    """All images of a run's data, training and test part; new classes are test classes."""
    config, split, known = run.config, run.config.split, run.classes
    if config.vectors_file is not None:
        return own_vectors(run)[0]
    size = split.size or ("large" if config.data == "vehicleid" else None)
    options = {"seed": config.seed, "test_share": split.test_share, "protocol": split.protocol}
    dataset = load(config.data, root=config.root, size=size, known=known, **options)  # type: ignore[arg-type]
    if known is not None:
        dataset = known.apply(dataset)
    elif split.val_classes:
        dataset = dataset.hold_out(split.val_classes, seed=config.seed)
    return list_dataset(dataset)


def own_vectors(run: Run) -> tuple[Listing, Tensor]:
    """The vectors that a run's head was trained on, and their listing."""
    file = Path(run.config.data.partition(":")[2]).expanduser()
    data = Embeddings.load(file)
    listing = list_embeddings(data, file)
    if run.classes is not None:
        dataset = make(file.name, listing.ids, listing.classes, listing.split)
        listing = replace(listing, split=run.classes.apply(dataset).split.tolist())
    return listing, data.z


def list_embeddings(data: Embeddings, file: Path) -> Listing:
    """The rows of an embeddings file, each under an id of its own."""
    root = data.meta.get("root")
    ids = with_row_ids(data, file).ids
    ids = [os.path.join(root, id) for id in ids] if isinstance(root, str) else ids
    if len(set(ids)) < len(ids):
        raise ValueError(f"{file} has two rows with the same id: a gallery needs every id once")
    return Listing(ids, data.distinct_names(), data.split)


def list_dataset(dataset: Dataset) -> Listing:
    """Every image of a dataset once, however many rows it appears in."""
    ids = [str(ImageRef(os.path.abspath(ref.path), ref.box)) for ref in image_refs(dataset)]
    classes = [dataset.class_names[label] for label in dataset.labels.tolist()]
    return merge([Listing(ids, classes, [str(split) for split in dataset.split])])


def merge(listings: Iterable[Listing]) -> Listing:
    """All listings together; of an id that occurs several times, the first row."""
    rows: dict[str, tuple[str, str]] = {}
    for listing in listings:
        for id, name, split in zip(listing.ids, listing.classes, listing.split, strict=True):
            rows.setdefault(id, (name, split))
    return Listing(list(rows), [name for name, _ in rows.values()], [split for _, split in rows.values()])


def with_row_ids(data: Embeddings, file: Path) -> Embeddings:
    """Rows without ids get ``FILE#row=N``: row 3 of one file and row 3 of another are different things."""
    if data.ids != [str(row) for row in range(len(data))]:
        return data
    path = os.path.abspath(file)
    return replace(data, ids=[str(RowRef(path, row)) for row in range(len(data))])


def file_stamps(ids: Iterable[str]) -> dict[str, Stamp]:
    """The stamps of the images' files as they are now."""
    return {id: file_stamp(image_path(id)) for id in ids}


def changed_files(before: dict[str, Stamp], now: dict[str, Stamp]) -> set[str]:
    """Ids whose file has changed or appeared; a missing file is noticed when it is read."""
    changed = {id for id, stamp in now.items() if stamp not in (NO_FILE, before.get(id))}
    return {id for id in changed if before.get(id) != IMPORTED}


def _list_folder(root: Path) -> Listing:
    """The class is the sub-folder's name, below folders such as ``train`` and ``test``, else the folder's."""
    if not root.is_dir():
        raise FileNotFoundError(f"folder {root} does not exist")
    inner = folders(root)
    parts = inner if inner and all(path.name.lower() in _SPLIT_FOLDERS for path in inner) else []
    images = [(root.name, images_in(folder)) for folder in (root, *parts)]
    for part in parts or [root]:
        images += [(folder.name, images_under(folder)) for folder in folders(part)]
    ids = [os.path.abspath(path) for _, paths in images for path in paths]
    classes = [name for name, paths in images for _ in paths]
    if not ids:
        raise FileNotFoundError(f"folder {root} holds no images")
    return Listing(ids, classes, ["test"] * len(ids))
