"""What is trained on: images or precomputed vectors, behind the same two questions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iaa import models
from iaa.config import Config
from iaa.data import Dataset, evaluations, load
from iaa.data.dataset import draw_classes, make
from iaa.data.image_dataset import Batch, ImageDataset, loader, transform
from iaa.data.sampler import BalancedSampler, Numbered
from iaa.models.vector_head import Projection
from iaa.provenance import base_folder, check_names, image_ids
from iaa.retrieval.embeddings import Embeddings

Batches = Iterable[Batch]
CACHE: dict[str, str | bool] = {"auto": "auto", "on": True, "off": False}
PIXELS = 16
"""Side to which images are brought for the row of raw pixels."""


class ImageSource:
    """Images of a dataset, as a network wants them."""

    def __init__(self, config: Config, model: models.Embedder) -> None:
        self.config, self.preprocessing = config, model.preprocessing
        split = config.split
        options: dict[str, Any] = {"root": config.root, "seed": config.seed, "protocol": split.protocol}
        options |= {"test_share": split.test_share}
        self.dataset = _parts(load(config.data, size=split.size, **options), config)
        self.tests = evaluations(config.data, size=split.size, **options)
        if not any(map(len, self.tests.values())):
            raise ValueError(f"{config.data} has no test part: a run is measured on classes of its own")
        check_names((self.dataset, *self.tests.values()))
        root = None if config.root is None else Path(config.root)
        self.base = base_folder(config.data, root, self.tests.values())

    def training(self, part: Dataset) -> ImageDataset:
        """With random crops and flips."""
        return self._images(part, train=True, cache=True)

    def batches(self, images: ImageDataset, sampler: BalancedSampler) -> Batches:
        """Training batches of the epoch the sampler is set to, whenever they are asked for."""
        return loader(images, batches=Numbered(sampler), workers=self.config.images.workers)

    def in_order(self, part: Dataset, rows: slice = slice(None), *, again: bool = False) -> Batches:
        """Test-time images, row by row; kept in memory if they are needed ``again``."""
        part = part.take(np.arange(len(part))[rows])
        images = self._images(part, train=False, cache=again, check=False)
        return loader(images, batch_size=64, workers=self.config.images.workers)

    def plain(self) -> tuple[str, nn.Module]:
        """What needs no network: small images."""
        return f"pixels ({PIXELS} x {PIXELS})", _Pixels()

    def ids(self, part: Dataset, rows: Tensor) -> list[str]:
        """As `iaa embed` names them: paths below ``root``, and boxes."""
        return image_ids(part.take(rows.numpy()), self.base)

    @property
    def root(self) -> str | None:
        """What the ids are relative to."""
        return str(self.base)

    def _images(self, part: Dataset, *, train: bool, cache: bool, check: bool = True) -> ImageDataset:
        images = self.config.images
        return ImageDataset(
            part.paths,
            part.labels,
            transform(train, **self.preprocessing),
            cache=CACHE[images.cache] if cache else False,
            on_bad_image=images.on_bad_image,
            boxes=part.boxes,
            check=check,
        )


@dataclass(frozen=True)
class _Vectors:
    vectors: Tensor
    labels: Tensor
    paths: list[str]


class VectorSource:
    """Precomputed vectors of any kind."""

    def __init__(self, config: Config) -> None:
        self.config = config
        file = Path(config.data.partition(":")[2]).expanduser()
        self.file = Embeddings.load(file)
        labels = self.file.distinct_names()
        rows = [str(row) for row in range(len(self.file))]
        whole = make(config.data, rows, labels, self.file.split, role=self.file.role)
        share = 0.2 if config.split.test_share is None else config.split.test_share
        if set(self.file.split) == {"test"}:  # no split of its own
            chosen = draw_classes(np.unique(whole.labels), share, seed=config.seed)
            whole = whole.with_split(np.where(np.isin(whole.labels, chosen), "test", "train"))
        self.dataset = _parts(whole, config)
        self.tests = {"test": self.dataset.part("test")}

    def training(self, part: Dataset) -> _Vectors:
        """As they are."""
        return _Vectors(self.file.z[_rows(part)].float(), torch.from_numpy(part.labels), list(part.paths))

    def batches(self, vectors: _Vectors, sampler: BalancedSampler) -> Batches:
        """Training batches of the epoch the sampler is set to, whenever they are asked for."""
        return _InMemory(vectors, sampler)

    def in_order(self, part: Dataset, rows: slice = slice(None), *, again: bool = False) -> Batches:
        """Row by row."""
        part = part.take(np.arange(len(part))[rows])
        return _InMemory(self.training(part), torch.arange(len(part)).split(4096))

    def plain(self) -> tuple[str, nn.Module]:
        """What needs no training: the vectors themselves."""
        return "vectors as given", nn.Identity()

    def ids(self, part: Dataset, rows: Tensor) -> list[str]:
        """As in the file."""
        return [self.file.ids[int(part.paths[row])] for row in rows.tolist()]

    @property
    def root(self) -> str | None:
        """What the ids are relative to, if the file says so."""
        root = self.file.meta.get("root")
        return root if isinstance(root, str) else None


Source = ImageSource | VectorSource


def trained_on(source: Source) -> list[str]:
    """Names of the test classes that are trained on as well: none, unless own data is split that way."""
    tests = {part.class_names[label] for part in source.tests.values() for label in np.unique(part.labels)}
    train = source.dataset.part("train")
    return sorted(tests & {train.class_names[label] for label in np.unique(train.labels)})


def _parts(whole: Dataset, config: Config) -> Dataset:
    """With classes held out, which keep all their images, and few of the others if so wanted."""
    split = config.split
    if split.val_classes:
        whole = whole.hold_out(split.val_classes, seed=config.seed)
    return whole if split.per_class is None else whole.per_class(split.per_class, seed=config.seed)


def open_source(config: Config) -> tuple[Source, models.Embedder | Projection]:
    """The data and a network for it, with weights drawn by the seed."""
    torch.manual_seed(config.seed)
    network = config.network
    if config.data.startswith("embeddings:"):
        vectors = VectorSource(config)
        return vectors, Projection(vectors.file.z.shape[1], dim=network.dim, hidden=network.hidden)
    if network.hidden:
        raise ValueError(
            "network.hidden belongs to heads on embeddings:FILE; a network for images has a linear head"
        )
    model = models.build(
        config.model,
        dim=network.dim,
        pretrained=network.pretrained,
        weights=network.weights,
        pool=network.pool,
        freeze_bn=network.freeze_bn,
        freeze_backbone=network.freeze_backbone,
        size=config.images.size,
    )
    return ImageSource(config, model), model


@dataclass(frozen=True)
class _InMemory:
    vectors: _Vectors
    batches: Iterable[Any]

    def __iter__(self) -> Iterator[Batch]:
        for rows in self.batches:
            at = torch.as_tensor(rows)
            yield Batch(self.vectors.vectors[at], self.vectors.labels[at], at)


class _Pixels(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(images, PIXELS).flatten(1)


def _rows(part: Dataset) -> Tensor:
    return torch.tensor([int(path) for path in part.paths], dtype=torch.long)
