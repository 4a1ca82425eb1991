"""Features of a frozen network for a whole dataset, computed once and cached next to the runs."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from iaa.config import Config
from iaa.data import Dataset
from iaa.data.image_dataset import ImageDataset, transform
from iaa.data.image_io import UnreadableImage
from iaa.data.image_ref import ImageRef, box_array
from iaa.data_source import SKIPS, ImageSource
from iaa.embed import PRECISIONS, embed_images, resolve_device
from iaa.files import Stamp, file_stamp
from iaa.models import Embedder
from iaa.progress import counting
from iaa.provenance import assemble, data_hash, describe, distinct_images, fingerprint
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.shard_files import list_shards
from iaa.retrieval.shards import Shards

CACHE = ".features"
"""Folder of cached features below that of all runs."""

_log = logging.getLogger("iaa.train")


def cached_features(
    config: Config,
    source: ImageSource,
    network: Embedder,
    parts: Mapping[str, Dataset],
    *,
    quiet: bool = False,
) -> dict[str, Embeddings]:
    """Embeddings by ``network`` of some parts of the data, by their names.

    They are computed once for the same images and weights; what an interrupted pass has finished is kept.
    ``meta["stamps"]`` are those of the images' files, row by row.
    """
    request = _request(config, source, network, parts)
    images, key, files = request.images, request.key, request.files
    if request.cached:
        _log.info("features of %s images are cached in %s", f"{len(images):,}", request.shards.parent)
        made = {part: Embeddings.load(file) for part, file in files.items()}
        _check_readable(next(iter(made.values())).meta["unreadable"], config)
        return made
    dataset = ImageDataset(
        [image.path for image in images.values()],
        np.zeros(len(images), dtype=np.int64),
        transform(False, **network.preprocessing),
        cache=False,
        on_bad_image="skip",
        boxes=box_array(images.values()),
        check=False,
    )
    shards = Shards(request.shards, key, len(images))
    try:
        device = resolve_device(config.device)
        with counting(len(images), done=shards.done, rate="images/s", quiet=quiet) as bar:
            embed_images(
                network.to(device),
                dataset,
                shards,
                device=device,
                precision=PRECISIONS[config.precision],
                workers=config.images.workers,
                on_batch=bar.advance,
            )
        rows, z, unreadable = shards.collect()
        _check_readable(dict(unreadable), config)
        if not len(rows):
            raise ValueError("not one image could be read")
        ids = list(images)
        position = {ids[row]: number for number, row in enumerate(rows.tolist())}
        base = Path(source.root or ".")
        meta = {**key, "root": str(base), "weights": _source(network), "unreadable": dict(unreadable)}
        made = {name: assemble(part, base, position, z, meta) for name, part in parts.items()}
        for part, embeddings in made.items():
            embeddings.meta["stamps"] = [request.stamps[id] for id in embeddings.ids]
            embeddings.save(files[part])
        shards.remove()
    finally:
        shards.release()
    return made


def uncached(config: Config, source: ImageSource, network: Embedder, parts: Mapping[str, Dataset]) -> int:
    """The number of images that ``cached_features`` would have to embed."""
    request = _request(config, source, network, parts)
    if request.cached:
        return 0
    return len(request.images) - sum(stop - start for start, stop in list_shards(request.shards))


@dataclass(frozen=True)
class _Request:
    images: dict[str, ImageRef]
    """The distinct ones, by id."""
    stamps: dict[str, Stamp]
    """Of their files, before they are read."""
    key: dict[str, Any]
    """What the features depend on."""
    files: dict[str, Path]
    """Of the parts."""
    shards: Path
    """Folder of what an interrupted pass has finished."""

    @property
    def cached(self) -> bool:
        return all(file.is_file() for file in self.files.values())


def _request(
    config: Config, source: ImageSource, network: Embedder, parts: Mapping[str, Dataset]
) -> _Request:
    base = Path(source.root or ".")
    images = distinct_images(parts.values(), base)
    stamps = {id: file_stamp(image.path) for id, image in images.items()}
    key = describe(network, config.model) | {
        "data_sha256": data_hash(parts.values(), base, images),
        "stamps_sha256": fingerprint(stamps),
        "precision": config.precision,
    }
    folder, name = Path(config.run.out).expanduser() / CACHE, fingerprint(key)[:20]
    files = {part: folder / f"{name}-{part}.safetensors" for part in parts}
    return _Request(images, stamps, key, files, folder / f"{name}.parts")


def _check_readable(unreadable: dict[str, str], config: Config) -> None:
    """Stop at unreadable images of any part, or list them if they may be left out."""
    if not unreadable:
        return
    path, reason = next(iter(unreadable.items()))
    if config.images.on_bad_image == "raise":
        more = f" (and {len(unreadable) - 1} more)" if len(unreadable) > 1 else ""
        raise UnreadableImage(path, f"{reason}{more}; {SKIPS}")
    for path, reason in unreadable.items():
        _log.warning("left out: %s", UnreadableImage(path, reason))


def _source(network: Embedder) -> str:
    return "random" if network.loaded is None else network.loaded.source
