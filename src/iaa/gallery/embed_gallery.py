"""From names to vectors, many at a time: what a killed process has finished is kept for the next."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from iaa.data.image_dataset import ImageDataset, transform
from iaa.embed import embed_images
from iaa.gallery.file_stamps import Stamp
from iaa.gallery.gallery_items import image, own_vectors
from iaa.inference import Model
from iaa.provenance import fingerprint
from iaa.retrieval.shards import Shards

SAVE_EVERY = 1024
"""Images between two saves, the most that a kill can cost."""
Progress = Callable[[int, int], None]
"""Told how many images of how many are embedded."""


def embed_names(
    model: Model, names: list[str], stamps: dict[str, Stamp], folder: Path, on_progress: Progress
) -> tuple[list[str], Tensor, dict[str, str]]:
    """Names and embeddings of what can be read, and why the rest cannot; what a kill left is continued."""
    given, z = _given(model, names)
    known = set(given)
    names = [name for name in names if name not in known]
    if not names:
        return given, z, {}
    if model.network is None or model.preprocessing is None:
        raise ValueError(f"{model.path} embeds vectors, not images: {model.no_images}")
    found = [image(name) for name in names]
    boxes = np.stack([one.box for one in found])
    images = ImageDataset(
        [one.path for one in found],
        np.zeros(len(found), dtype=np.int64),
        transform(False, **model.preprocessing),
        cache=False,
        on_bad_image="skip",
        boxes=None if np.isnan(boxes).all() else boxes,
        check=False,
    )
    wanted = {"names": names, "stamps": [stamps[name] for name in names]}
    config = {"model": model.identity, "images": fingerprint(wanted)}
    try:
        parts = Shards(folder, config)
    except ValueError:  # begun with other images
        parts = Shards(folder, config, restart=True)
    done = parts.done

    def tick(images: int) -> None:
        nonlocal done
        done += images
        on_progress(done, len(names))

    try:
        on_progress(done, len(names))
        embed_images(model.network, images, parts, device=model.device, save_every=SAVE_EVERY, on_batch=tick)
        rows, vectors, bad = _collected(parts, images)
        parts.remove()
    finally:
        parts.release()
    reasons = dict(bad)
    embedded = set(rows.tolist())  # of an image one box may be readable, and another not
    left_out = {
        name: reasons[one.path]
        for row, (name, one) in enumerate(zip(names, found, strict=True))
        if row not in embedded and one.path in reasons
    }
    z = torch.cat([z, vectors]) if len(vectors) else z
    return given + [names[row] for row in rows.tolist()], z, left_out


def _collected(parts: Shards, images: ImageDataset) -> tuple[Tensor, Tensor, list[tuple[str, str]]]:
    try:
        return parts.collect()
    except ValueError:
        if len(images.bad) < len(set(images.paths)):
            raise
        none = torch.empty(0, dtype=torch.int64), torch.empty(0, 0)
        return *none, [(error.path, error.reason) for error in images.bad]


def _given(model: Model, names: list[str]) -> tuple[list[str], Tensor]:
    """Those of a head's own vectors, which need no image."""
    if model.head is None or model.config is None:
        return [], torch.empty(0, model.dim)
    listing, vectors = own_vectors(model.config)
    wanted = set(names)
    rows = [row for row, name in enumerate(listing.ids) if name in wanted]
    if not rows:
        return [], torch.empty(0, model.dim)
    return [listing.ids[row] for row in rows], model.embed(vectors[torch.tensor(rows)])
