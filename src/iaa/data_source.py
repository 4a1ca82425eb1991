"""The data of a run: images or precomputed vectors, listed once and served in batches."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iaa.config import Config
from iaa.data import Dataset, load
from iaa.data.benchmarks import VEHICLEID_SIZES
from iaa.data.dataset import ClassSplit, draw_classes, make
from iaa.data.image_dataset import Batch, ImageDataset, loader, transform
from iaa.data.image_io import UnreadableImage, unreadable
from iaa.data.sampler import BalancedSampler, Numbered
from iaa.models import Embedder, Preprocessing
from iaa.models.heads import VectorHead
from iaa.provenance import base_folder, check_names, image_ids
from iaa.retrieval.embeddings import Embeddings
from iaa.run_records import image_network

Batches = Iterable[Batch]
_log = logging.getLogger("iaa")
CACHE: dict[str, str | bool] = {"auto": "auto", "on": True, "off": False}
PIXELS = 16
"""Side of the images that raw pixels are compared on."""
SKIPS = "--images.on-bad-image skip leaves such images out"


class ImageSource:
    """The images of a dataset; batches take the preprocessing of the network they are for."""

    def __init__(self, config: Config, known: ClassSplit | None = None) -> None:
        self.config = config
        every = _list(config, known)
        default = "medium" if "medium" in every else next(iter(every))  # of vehicleid's test sets
        self.dataset = _split(every[default], config, known)
        self.tests = {name: dataset.part("test") for name, dataset in every.items()}
        if not any(map(len, self.tests.values())):
            raise ValueError(f"{config.data} has no test part, on which a run is scored")
        check_names((self.dataset, *self.tests.values()))
        root = None if config.root is None else Path(config.root)
        self.root: str | None = str(base_folder(config.data, root, self.tests.values()))
        self.unreadable: list[UnreadableImage] = []
        """Images that were left out, by ``check_images`` or later by a loader."""

    def check_images(self) -> None:
        """Look at the images of all parts, tests included; stop at unreadable ones, or leave them out."""
        bad = unreadable(path for part in (self.dataset, *self.tests.values()) for path in part.paths)
        if not bad:
            return
        if self.config.images.on_bad_image == "raise":
            more = f" (and {len(bad) - 1} more: `iaa data check` lists them)" if len(bad) > 1 else ""
            raise UnreadableImage(bad[0].path, f"{bad[0].reason}{more}; {SKIPS}")
        self.unreadable += bad
        names = [error.path for error in bad]

        def readable(part: Dataset) -> Dataset:
            return part.take(~np.isin(part.paths, names))

        self.dataset = readable(self.dataset)
        self.tests = {name: readable(part) for name, part in self.tests.items()}
        for name, part in {"train": self.dataset.part("train"), **self.tests}.items():
            if not len(part):
                raise ValueError(f"{self.config.data}: no image of the {name} part can be read")

    def training(self, part: Dataset, preprocessing: Preprocessing | None) -> ImageDataset:
        """Images with random crops and flips."""
        return self._images(part, preprocessing, train=True, cache=True)

    def batches(self, images: ImageDataset, sampler: BalancedSampler) -> Batches:
        """Training batches of the epoch the sampler is set to."""
        return _Skippable(loader(images, batches=Numbered(sampler), workers=self.config.images.workers))

    def in_order(
        self,
        part: Dataset,
        preprocessing: Preprocessing | None,
        rows: slice = slice(None),
        *,
        again: bool = False,
    ) -> Batches:
        """Test-time images, row by row; cached if they are needed ``again``."""
        part = part.take(np.arange(len(part))[rows])
        images = self._images(part, preprocessing, train=False, cache=again)
        return _Skippable(loader(images, batch_size=64, workers=self.config.images.workers))

    def raw_features(self) -> tuple[str, nn.Module]:
        """The simplest embedding, which needs no network: small images."""
        return f"pixels ({PIXELS} x {PIXELS})", nn.Sequential(nn.AdaptiveAvgPool2d(PIXELS), nn.Flatten())

    def ids(self, part: Dataset, rows: Tensor) -> list[str]:
        """Paths relative to ``root``, with boxes, as `iaa embed` writes them."""
        return image_ids(part.take(rows.numpy()), Path(self.root or "."))

    def _images(
        self, part: Dataset, preprocessing: Preprocessing | None, *, train: bool, cache: bool
    ) -> ImageDataset:
        if preprocessing is None:
            raise ValueError(f"{self.config.data} holds images, but the network takes vectors")
        options = self.config.images
        images = ImageDataset(
            part.paths,
            part.labels,
            transform(train, crop=options.crop, **preprocessing),
            cache=CACHE[options.cache] if cache else False,
            on_bad_image=options.on_bad_image,
            boxes=part.boxes,
            check=False,
        )
        images.bad = self.unreadable  # shared: what a loader cannot decode is listed with the others
        return images


@dataclass(frozen=True)
class VectorRows:
    """Vectors with their labels; ``paths`` are their ids."""

    vectors: Tensor
    labels: Tensor
    paths: list[str]


class VectorSource:
    """Precomputed vectors of any kind, from an embeddings file."""

    root: str | None

    def __init__(
        self, config: Config, data: Embeddings | None = None, known: ClassSplit | None = None
    ) -> None:
        if config.vectors_file is None:
            raise ValueError(f"data must be embeddings:FILE for vectors, got {config.data}")
        self.file = file = Embeddings.load(config.vectors_file) if data is None else data
        names, rows = file.distinct_names(), np.arange(len(file))
        whole = make(config.data, file.ids, names, file.split, role=file.role, rows=rows)
        share = 0.2 if config.split.test_share is None else config.split.test_share
        if known is None and set(file.split) == {"test"}:  # no split of its own
            chosen = draw_classes(np.unique(whole.labels), share, seed=config.seed)
            whole = whole.with_split(np.where(np.isin(whole.labels, chosen), "test", "train"))
        self.dataset = _split(whole, config, known)
        self.tests = {"test": self.dataset.part("test")}
        root = file.meta.get("root")
        self.root = root if isinstance(root, str) else None
        self.unreadable: list[UnreadableImage] = []

    def check_images(self) -> None:
        """Vectors were checked when their file was read."""

    def training(self, part: Dataset, preprocessing: Preprocessing | None = None) -> VectorRows:
        """The vectors as they are."""
        vectors = self.file.z[torch.from_numpy(part.rows)].float()
        return VectorRows(vectors, torch.from_numpy(part.labels), part.paths.tolist())

    def batches(self, vectors: VectorRows, sampler: BalancedSampler) -> Batches:
        """Training batches of the epoch the sampler is set to."""
        return _InMemory(vectors, sampler)

    def in_order(
        self,
        part: Dataset,
        preprocessing: Preprocessing | None = None,
        rows: slice = slice(None),
        *,
        again: bool = False,
    ) -> Batches:
        """Vectors, row by row."""
        part = part.take(np.arange(len(part))[rows])
        return _InMemory(self.training(part), torch.arange(len(part)).split(4096))

    def raw_features(self) -> tuple[str, nn.Module]:
        """The simplest embedding: the vectors themselves."""
        return "vectors as given", nn.Identity()

    def ids(self, part: Dataset, rows: Tensor) -> list[str]:
        """The ids of the file."""
        ids: list[str] = part.paths[rows.numpy()].tolist()
        return ids


Source = ImageSource | VectorSource


def open_data(config: Config, known: ClassSplit | None = None) -> Source:
    """List the data of a configuration; nothing is decoded yet.

    Classes ``known`` to a run stay in the part they were in, and new ones are test classes.
    """
    if config.vectors_file is not None:
        return VectorSource(config, known=known)
    return ImageSource(config, known)


def classes_of(source: Source) -> ClassSplit:
    """The classes that are trained, validated and tested on."""
    return ClassSplit.of(source.dataset, *source.tests.values())


def check_classes(source: Source, known: ClassSplit, config: Config, *, training: bool = True) -> None:
    """Warn of classes that no longer have images; ``training`` cannot go on without one of its own."""
    missing = known.missing(source.dataset, *source.tests.values())
    for part, names in missing.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        message = f"{config.data} no longer has images of {names[0]!r}{more}, {part} classes of this run"
        if training and part == "train":
            raise ValueError(f"{message}: put them back, or train a new run")
        _log.warning("%s: the others remain", message)


def build_network(config: Config, source: Source) -> Embedder | VectorHead:
    """A network for the data with its first weights: published, from a file, or drawn by the seed."""
    torch.manual_seed(config.seed)
    network = config.network
    if isinstance(source, VectorSource):
        features = source.file.z.shape[1]
        return VectorHead(features, dim=network.dim, hidden=network.hidden, head=network.head_kind)
    if network.hidden:
        raise ValueError(
            "network.hidden belongs to heads on embeddings:FILE; a network for images has a linear head"
        )
    return image_network(config, pretrained=network.pretrained, weights=network.weights)


def classes_in_both(source: Source) -> list[str]:
    """Names of the test classes that are trained on as well: none, unless custom data is split that way."""
    tests = {name for part in source.tests.values() for name in part.used_names()}
    return sorted(tests.intersection(source.dataset.part("train").used_names()))


def _list(config: Config, known: ClassSplit | None) -> dict[str, Dataset]:
    """The dataset by the name of its test set; vehicleid has three that belong in one table."""
    split = config.split
    options: dict[str, Any] = {"root": config.root, "seed": config.seed, "protocol": split.protocol}
    options |= {"test_share": split.test_share, "known": known}
    sizes = VEHICLEID_SIZES if config.data == "vehicleid" and split.size is None else (split.size,)
    return {size or "test": load(config.data, size=size, **options) for size in sizes}


def _split(whole: Dataset, config: Config, known: ClassSplit | None) -> Dataset:
    """Hold classes out, which keep all their images, then limit the images of the training classes."""
    split = config.split
    if known is not None:
        whole = known.apply(whole)
    if split.val_classes and not (known is not None and known.val):
        whole = whole.hold_out(split.val_classes, seed=config.seed)
    return whole if split.per_class is None else whole.per_class(split.per_class, seed=config.seed)


@dataclass(frozen=True)
class _Skippable:
    """Batches whose unreadable images name the option that leaves them out."""

    batches: Batches

    def __iter__(self) -> Iterator[Batch]:
        try:
            yield from self.batches
        except UnreadableImage as error:
            raise UnreadableImage(error.path, f"{error.reason}; {SKIPS}") from error


@dataclass(frozen=True)
class _InMemory:
    vectors: VectorRows
    batches: Iterable[Any]

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.batches:
            rows = torch.as_tensor(batch)
            yield Batch(self.vectors.vectors[rows], self.vectors.labels[rows], rows)
