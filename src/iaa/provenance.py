"""Where embeddings come from: names of images, identity of data and network, and the file that says so."""

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from iaa.data import Dataset
from iaa.models import Embedder
from iaa.retrieval.embeddings import Embeddings

NAMELESS = "its name is not UTF-8: rename it"


class ImageRef(NamedTuple):
    """A file and the box to cut out of it (NaN: all of it)."""

    path: str
    box: npt.NDArray[np.float64]


def base_folder(spec: str, root: Path | None, datasets: Iterable[Dataset]) -> Path:
    """What names start from: the dataset's own folder if all lie there, else the nearest shared one."""
    kind, _, place = spec.partition(":")
    given = root
    if kind == "folder":
        given = Path(place)
    elif kind == "table" and root is None:
        given = Path(place).parent
    folders = {os.path.dirname(os.path.abspath(path)) for dataset in datasets for path in dataset.paths}
    shared = Path(os.path.commonpath(list(folders)))
    home = shared if given is None else Path(os.path.abspath(given.expanduser()))
    return home if shared.is_relative_to(home) else shared


def check_names(datasets: Iterable[Dataset]) -> None:
    """Raise if no text can name an image or a class: its embedding could not be kept under its name."""
    for dataset in datasets:
        names = [*dataset.paths.tolist(), *dataset.class_names]
        try:
            "\n".join(names).encode()
        except UnicodeEncodeError:
            culprit = next(name for name in names if not is_text(name))
            raise ValueError(f"{ascii(culprit)[1:-1]}: {NAMELESS}") from None


def is_text(name: str) -> bool:
    """False for bytes of another encoding, which file systems allow."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def image_ids(dataset: Dataset, base: Path) -> list[str]:
    """A name per row: the path below ``base``, and the box as a media fragment where there is one."""
    names = [Path(os.path.relpath(path, base)).as_posix() for path in dataset.paths]
    if dataset.boxes is None:
        return names
    return [name + fragment(box) for name, box in zip(names, dataset.boxes, strict=True)]


def distinct_images(datasets: Iterable[Dataset], base: Path) -> dict[str, ImageRef]:
    """Every image once, by its name, however many datasets and rows it stands in."""
    found: dict[str, ImageRef] = {}
    for dataset in datasets:
        boxes = np.full((len(dataset), 4), np.nan) if dataset.boxes is None else dataset.boxes
        for name, path, box in zip(image_ids(dataset, base), dataset.paths, boxes, strict=True):
            found.setdefault(name, ImageRef(str(path), box))
    return found


def weights_hash(model: nn.Module) -> str:
    """SHA-256 over names, types, shapes and bytes of a network's parameters and buffers."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def data_hash(datasets: Iterable[Dataset], base: Path, images: dict[str, ImageRef]) -> str:
    """SHA-256 over name, size on disk, class, split and role of the rows whose image is in ``images``."""
    sizes = {name: os.path.getsize(image.path) for name, image in images.items()}
    digest = hashlib.sha256()
    for dataset in datasets:
        names = image_ids(dataset, base)
        for name, label, split, role in zip(
            names, dataset.labels.tolist(), dataset.split, dataset.role, strict=True
        ):
            if name in sizes:
                row = [name, sizes[name], dataset.class_names[label], str(split), str(role)]
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
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in packages},
    }


def fingerprint(config: dict[str, Any]) -> str:
    """One word for a whole configuration."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def assemble(
    dataset: Dataset, base: Path, place: dict[str, int], z: Tensor, meta: dict[str, Any]
) -> Embeddings:
    """The embeddings of a dataset out of those of all images; ``place`` says where, and who is missing."""
    names = image_ids(dataset, base)
    rows = [row for row, name in enumerate(names) if name in place]
    part = dataset.take(np.array(rows, dtype=np.int64))
    used = np.unique(part.labels).tolist()
    counts = {"images": len(rows), "classes": len(used), "left_out": len(names) - len(rows)}
    return Embeddings(
        z[torch.tensor([place[names[row]] for row in rows])],
        torch.from_numpy(part.labels),
        [names[row] for row in rows],
        {label: dataset.class_names[label] for label in used},
        [str(split) for split in part.split],
        [str(role) for role in part.role],
        meta | {"counts": counts},
        [] if part.sequence is None else part.sequence.tolist(),
    )


def fragment(box: npt.NDArray[np.float64]) -> str:
    """A box as a media fragment, ``#xywh=left,top,width,height``; nothing for the whole image."""
    if np.isnan(box).any():
        return ""
    left, top, right, bottom = box.tolist()
    return f"#xywh={left:g},{top:g},{right - left:g},{bottom - top:g}"
