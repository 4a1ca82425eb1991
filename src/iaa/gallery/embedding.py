"""From ids to embeddings, many at a time: what a killed process has finished is not done again."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from iaa.data.image_dataset import ImageDataset, transform
from iaa.data.image_ref import ImageRef, box_array, parse_ref
from iaa.embed_processes import device_threads, embed_on_devices
from iaa.files import Stamp
from iaa.gallery.listing import own_vectors, with_row_ids
from iaa.inference import Model
from iaa.provenance import fingerprint
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.shards import Shards
from iaa.runs import TRAINING, Run

SAVE_EVERY = 1024
"""Images between two saves, the most that a kill can cost."""
Progress = Callable[[int, int], None]
"""Called with the number of images embedded and the number of all."""


@contextmanager
def embedded_ids(
    model: Model,
    ids: list[str],
    stamps: dict[str, Stamp],
    folder: Path,
    on_progress: Progress,
    *,
    devices: int = 1,
) -> Iterator[tuple[list[str], Tensor, dict[str, str]]]:
    """Ids and embeddings of the readable images, and why the others are not; resumes what was killed.

    The embeddings stay in ``folder`` until the block has stored them elsewhere.
    """
    given, z = (
        _embed_own_vectors(model, ids) if model.head is not None else _from_training(model, ids, stamps)
    )
    known = set(given)
    ids = [id for id in ids if id not in known]
    if not ids:
        yield given, z, {}
        return
    if model.network is None or model.preprocessing is None:
        raise ValueError(f"{model.path} embeds vectors, not images: {model.no_images}")
    refs = [_image(id) for id in ids]
    images = ImageDataset(
        [ref.path for ref in refs],
        np.zeros(len(refs), dtype=np.int64),
        transform(False, **model.preprocessing),
        cache=False,
        on_bad_image="skip",
        boxes=box_array(refs),
        check=False,
    )
    files = {"ids": ids, "stamps": [stamps[id] for id in ids]}
    config = {"model": model.identity, "images": fingerprint(files)}
    plan: Any = {"save_every": SAVE_EVERY, "threads": device_threads(model.device, devices)}
    try:
        parts = Shards(folder, config, len(ids), **plan)
    except ValueError:  # begun with other images
        parts = Shards(folder, config, len(ids), restart=True, **plan)
    done = parts.done

    def on_batch(images: int) -> None:
        nonlocal done
        done += images
        on_progress(done, len(ids))

    try:
        on_progress(done, len(ids))
        embed_on_devices(
            model.network,
            images,
            parts,
            devices=devices,
            device=model.device,
            precision=model.precision,
            on_batch=on_batch,
        )
        rows, vectors, unreadable = parts.collect()
        reasons, readable = dict(unreadable), set(rows.tolist())
        left_out = {  # one box of an image may be readable and another not
            id: reasons[ref.path]
            for row, (id, ref) in enumerate(zip(ids, refs, strict=True))
            if row not in readable and ref.path in reasons
        }
        z = torch.cat([z, vectors]) if len(vectors) else z
        try:
            yield given + [ids[row] for row in rows.tolist()], z, left_out
        except ValueError:  # refused: nothing of it will be stored
            parts.remove()
            raise
        parts.remove()
    finally:
        parts.release()


def vectors_for(model: Model, file: Path) -> Embeddings:
    """The rows of an embeddings file in the space of the model."""
    data = with_row_ids(Embeddings.load(file), file)
    made_by = data.meta.get("weights_sha256")
    by_model = made_by in model.makers
    if model.head is not None and data.z.shape[1] == model.head.features and not by_model:
        return replace(data, z=model.embed(data.z))
    check_origin(model, file, data.z.shape[1], data.meta)
    return data


def check_origin(model: Model, file: Path, dim: int, meta: dict[str, Any]) -> None:
    """Raise unless the vectors of a file can be compared with those of the model."""
    if dim != model.dim:
        raise ValueError(
            f"{file} holds vectors of {dim} dimensions, the model of {model.path} makes "
            f"{model.dim}: `iaa embed … --model {model.path}` makes matching ones"
        )
    made_by = meta.get("weights_sha256")
    if made_by is not None and made_by not in model.makers:
        raise ValueError(
            f"{file} was made by another network than {model.path}: similarities would be meaningless"
        )
    for name, expected, unnamed in (
        ("pool", model.pool, model.pool),
        ("preprocessing", model.identity["preprocessing"], model.identity["preprocessing"]),
        ("flip", model.identity.get("flip", False), made_by is None and model.identity.get("flip", False)),
    ):
        actual = meta.get(name, unnamed)
        if actual != expected:
            raise ValueError(
                f"{file} was made with {name} {actual}, the model of {model.path} has {expected}"
            )


def embed_query(query: Any, model: Model | None, *, dim: int) -> tuple[list[str], Tensor]:
    """Names and embeddings of queries of any kind; vectors of ``dim`` numbers are embeddings already."""
    if isinstance(query, list | tuple) and query and getattr(query[0], "ndim", 0) == 1:
        query = torch.stack([torch.as_tensor(vector) for vector in query])
    if isinstance(query, Tensor | np.ndarray):
        z = torch.as_tensor(query)
        if z.is_floating_point():
            z = z[None] if z.ndim == 1 else z
            if model is not None and model.head is not None and z.ndim == 2:
                z = model.embed(z) if z.shape[1] == model.head.features != dim else z
            return [str(row) for row in range(len(z))], z
    if model is None:
        raise ValueError("the gallery was made without a model: a query must be vectors of floats")
    z = model.embed(query)
    paths = query if isinstance(query, list | tuple) else [query]
    if len(paths) == len(z) and all(isinstance(path, str | Path) for path in paths):
        return [str(path) for path in paths], z
    return [str(row) for row in range(len(z))], z


def _embed_own_vectors(model: Model, ids: list[str]) -> tuple[list[str], Tensor]:
    """Those ids that are vectors the model's head was trained on, and their embeddings."""
    if model.config is None:
        return [], torch.empty(0, model.dim)
    listing, vectors = own_vectors(Run(model.path))
    wanted = set(ids)
    rows = [row for row, id in enumerate(listing.ids) if id in wanted]
    if not rows:
        return [], torch.empty(0, model.dim)
    return [listing.ids[row] for row in rows], model.embed(vectors[torch.tensor(rows)])


def _from_training(model: Model, ids: list[str], stamps: dict[str, Stamp]) -> tuple[list[str], Tensor]:
    """Those ids whose embeddings by this very model training has left in the run, and these."""
    known: dict[str, Tensor] = {}
    if model.config is not None and model.config.precision == model.precision:
        run = Run(model.path)
        for file in (run / TRAINING, *run.embeddings_files.values()):
            known |= _of_unchanged_files(model, file, stamps)
    given = [id for id in ids if id in known]
    return given, torch.stack([known[id] for id in given]) if given else torch.empty(0, model.dim)


def _of_unchanged_files(model: Model, file: Path, stamps: dict[str, Stamp]) -> dict[str, Tensor]:
    """Embeddings of a file that the model made from images as they still are."""
    try:
        data = Embeddings.load(file)
    except (OSError, ValueError):  # missing or damaged: its images are embedded anew
        return {}
    meta, names = data.meta, ("weights_sha256", "preprocessing")
    if {"dim": data.z.shape[1], **{name: meta.get(name) for name in names}} != model.identity:
        return {}
    ids = [os.path.join(meta.get("root", ""), id) for id in data.ids]
    rows = zip(ids, meta.get("stamps", ()), data.z, strict=False)  # some runs record no stamps
    return {id: z for id, stamp, z in rows if id in stamps and list(stamps[id]) == stamp}


def _image(id: str) -> ImageRef:
    ref = parse_ref(id)
    if not isinstance(ref, ImageRef):
        raise ValueError(f"{id} is a row of vectors, which only the model trained on them embeds")
    return ref
