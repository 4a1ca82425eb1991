"""What a finished run leaves, opened again: its network, its data, the embeddings of what it trained on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from iaa.config import Augment, Config, load_config, network_name
from iaa.embed import embed_batches, resolve_device
from iaa.retrieval.embeddings import Embeddings
from iaa.training.data_source import Source, open_source
from iaa.training.finalize import MODEL, origin
from iaa.training.scoring import AUTOCAST

TRAINING = "training.safetensors"
"""Embeddings of the training classes; not named as those of test classes are, which `iaa evaluate` scores."""


def open_run(run: str | Path) -> tuple[Config, Source, nn.Module]:
    """Configuration, data and trained network of a finished run."""
    from safetensors.torch import load_file

    folder = Path(run)
    config = load_config(folder)
    if not (folder / MODEL).is_file():
        raise FileNotFoundError(
            f"{folder} holds no {MODEL}: finish the run with `iaa train --resume {folder}`"
        )
    with torch.random.fork_rng(devices=[]):
        source, network = open_source(config)
    network.load_state_dict(load_file(folder / MODEL))
    return config, source, network.eval()


def training_embeddings(
    run: str | Path,
    *,
    device: str = "auto",
    tick: Callable[[float], None] = lambda done: None,
) -> Embeddings:
    """Embeddings of the training classes by the final network, as test-time images.

    Computed once and kept beside the run as ``training.safetensors``, whole or not at all.
    """
    file = Path(run) / TRAINING
    if file.is_file():
        return Embeddings.load(file)
    config, source, network = open_run(run)
    part = source.dataset.part("train")
    place = resolve_device(device)
    done = 0

    def count(samples: int) -> None:
        nonlocal done
        done += samples
        tick(done / len(part))

    z, labels, rows = embed_batches(
        network.to(place),
        source.in_order(part),
        device=place,
        precision=AUTOCAST[config.precision],
        on_batch=count,
    )
    at = rows.numpy()
    names = {label: part.class_names[label] for label in labels.unique().tolist()}
    meta = {
        "data": config.data,
        "model": network_name(config),
        "run": Path(run).resolve().name,
        "part": "train",
    }
    meta |= origin(source, network)
    found = Embeddings(
        z, labels, source.ids(part, rows), names, part.split[at].tolist(), part.role[at].tolist(), meta
    )
    found.save(file)
    return found


def correction_options(options: Augment) -> dict[str, Any]:
    """The options of ``iaa.correct`` in a configuration; without correction nobody borrows."""
    return {
        "neighbors": options.neighbors,
        "mean_width": options.mean_width,
        "cov_width": options.cov_width,
        "global_share": options.global_share,
        "falloff": options.falloff,
        "few": options.few if options.correction else 0,
        "scale": None if options.scale == "raw" else options.scale,
        "search": options.search,
    }
