"""Where embeddings come from: ids of images, identity of data and network, and the file that records both."""

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iaa.data import Dataset
from iaa.data.image_ref import ImageRef
from iaa.files import tensors_digest
from iaa.models import Embedder
from iaa.retrieval.embeddings import Embeddings

NOT_UTF8 = "its name is not UTF-8: rename it"


def base_folder(spec: str, root: Path | None, datasets: Iterable[Dataset]) -> Path:
    """The folder ids are relative to: the dataset's own if it contains all images, else their common one."""
    kind, _, location = spec.partition(":")
    own = root
    if kind == "folder":
        own = Path(location)
    elif kind == "table" and root is None:
        own = Path(location).parent
    folders = {os.path.dirname(os.path.abspath(path)) for dataset in datasets for path in dataset.paths}
    common = Path(os.path.commonpath(list(folders)))
    base = common if own is None else Path(os.path.abspath(own.expanduser()))
    return base if common.is_relative_to(base) else common


def check_names(datasets: Iterable[Dataset]) -> None:
    """Raise if the name of an image or of a class is not UTF-8: an embeddings file could not hold it."""
    for dataset in datasets:
        for name in (*dataset.paths.tolist(), *dataset.class_names):
            if not is_text(name):
                raise ValueError(f"{ascii(name)[1:-1]}: {NOT_UTF8}")


def is_text(name: str) -> bool:
    """False for bytes of another encoding, which file systems allow in names."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def image_refs(dataset: Dataset) -> list[ImageRef]:
    """The image of every row, with its box if it has one."""
    boxes = [None] * len(dataset) if dataset.boxes is None else dataset.boxes
    return [ImageRef.of(str(path), box) for path, box in zip(dataset.paths, boxes, strict=True)]


def image_ids(dataset: Dataset, base: Path) -> list[str]:
    """An id per row: the image's path relative to ``base``, and its box if it has one."""
    refs = image_refs(dataset)
    return [str(ImageRef(Path(os.path.relpath(ref.path, base)).as_posix(), ref.box)) for ref in refs]


def distinct_images(datasets: Iterable[Dataset], base: Path) -> dict[str, ImageRef]:
    """Every image once, by its id, however many datasets and rows it appears in."""
    images: dict[str, ImageRef] = {}
    for dataset in datasets:
        for id, ref in zip(image_ids(dataset, base), image_refs(dataset), strict=True):
            images.setdefault(id, ref)
    return images


def weights_hash(model: nn.Module) -> str:
    """SHA-256 over names, types, shapes and bytes of a network's parameters and buffers."""
    return tensors_digest(model.state_dict())


def data_hash(datasets: Iterable[Dataset], base: Path, images: dict[str, ImageRef]) -> str:
    """SHA-256 over id, file size, class, split, role and sequence of the rows with an image in ``images``."""
    sizes = {id: os.path.getsize(image.path) for id, image in images.items()}
    digest = hashlib.sha256()
    for dataset in datasets:
        ids = image_ids(dataset, base)
        sequence = [""] * len(ids) if dataset.sequence is None else dataset.sequence
        columns = ids, dataset.labels.tolist(), dataset.split, dataset.role, sequence
        for id, label, split, role, name in zip(*columns, strict=True):
            if id in sizes:
                row = [id, sizes[id], dataset.class_names[label], str(split), str(role)]
                row += [str(name)] if name else []
                digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()


def describe(network: Embedder, name: str) -> dict[str, Any]:
    """The identity of a network, of its preprocessing and of the packages that compute with them."""
    packages = ["iaa", "torch", "torchvision", "pillow"]
    if name == "lite0" or name.startswith("timm/"):
        packages.append("timm")
    return {
        "model": name,
        "dim": network.dim,
        "pool": network.pool,
        "weights_sha256": weights_hash(network),
        "preprocessing": json.loads(json.dumps(network.preprocessing)),
        **({"flip": True} if network.flip else {}),
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in packages},
    }


def fingerprint(config: dict[str, Any]) -> str:
    """SHA-256 of a configuration."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def assemble(
    dataset: Dataset, base: Path, row_of: dict[str, int], z: Tensor, meta: dict[str, Any]
) -> Embeddings:
    """The embeddings of a dataset, taken from those of all images: ``row_of`` gives the row of ``z`` by id.

    Images without a row are left out.
    """
    ids = image_ids(dataset, base)
    rows = [row for row, id in enumerate(ids) if id in row_of]
    part = dataset.take(np.array(rows, dtype=np.int64))
    counts = {"images": len(rows), "classes": len(np.unique(part.labels)), "left_out": len(ids) - len(rows)}
    ids = [ids[row] for row in rows]
    return with_columns(part, z[torch.tensor([row_of[id] for id in ids])], ids, meta | {"counts": counts})


def with_columns(dataset: Dataset, z: Tensor, ids: list[str], meta: dict[str, Any]) -> Embeddings:
    """The embeddings of a dataset, with its labels and whatever else it knows about each row."""
    return Embeddings(
        z,
        torch.from_numpy(dataset.labels),
        ids,
        {label: dataset.class_names[label] for label in np.unique(dataset.labels).tolist()},
        [str(split) for split in dataset.split],
        [str(role) for role in dataset.role],
        meta,
        [] if dataset.sequence is None else dataset.sequence.tolist(),
    )
