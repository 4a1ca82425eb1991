"""A dry run: the size and cost of a configuration, before hours are spent on it."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from iaa.config import Config
from iaa.data.dataset import ClassSplit
from iaa.data.image_cache import free_memory
from iaa.data_source import build_network, open_data
from iaa.embed import embed_batches, resolve_device
from iaa.training import distributed
from iaa.training.defaults import compares_heads, resolve
from iaa.training.setup import assemble, launch

STEPS = 3
SAMPLE = 192
"""Images that the speed of a frozen network is measured on."""


def dry_run(config: Config, *, classes: ClassSplit | None = None) -> dict[str, Any]:
    """Classes, samples, batches, parameters, memory, and the time extrapolated from a few real steps."""
    config = resolve(config)
    if compares_heads(config):
        return _compared(config, classes)
    fabric = launch(config)
    task = assemble(config, fabric, known=classes)
    sizes = task.train.class_sizes()
    steps = len(task.sampler)
    batches = iter(task.batches)
    seconds: list[float] = []
    images = 0
    for _ in range(min(STEPS, steps)):
        inputs, labels, _ = next(batches)
        began = time.monotonic()
        z = task.model(task.put(inputs))
        z, labels = distributed.gather(z.float(), labels.to(z.device))
        task.criterion.augment.update(z.detach(), labels)
        fabric.backward(task.criterion(z, labels))
        seconds.append(time.monotonic() - began)
        images = len(z)
    step = min(seconds)
    passes = 0.0
    if config.augment.copies and config.augment.refresh == "pass":
        passes = len(task.train) / images / config.augment.refresh_every / 3  # forward alone
    hours = config.epochs * (steps + passes) * step / 3600
    weights = sum(p.numel() for p in task.network.parameters())
    learning = sum(p.numel() for p in task.network.parameters() if p.requires_grad)
    learning += sum(p.numel() for p in task.criterion.parameters())
    facts = {
        "data": f"{config.data}: {len(task.train):,} training samples of {len(sizes):,} classes "
        f"({sizes.min()} to {sizes.max()} each)",
    }
    val = task.source.dataset.part("val")
    if len(val):
        facts["held out"] = f"{len(val):,} samples of {len(val.class_sizes()):,} classes"
    for name, part in task.source.tests.items():
        facts["test" if name == "test" else f"test, {name}"] = (
            f"{len(part):,} samples of {len(part.class_sizes()):,} classes"
        )
    facts |= {
        "network": f"{task.network.describe()}",  # type: ignore[operator]
        "parameters": f"{weights:,}, {learning:,} of them trained (including those of the loss)",
        "batches": f"{steps} per epoch of about {images} samples, over {fabric.world_size} devices",
        "augmentation": f"{config.augment.copies} copies per sample, statistics by {config.augment.refresh}",
        "memory": _memory(),
        "time": f"about {_time(hours)} for {config.epochs} epochs ({1000 * step:.0f} ms per step)",
    }
    return facts


def _compared(config: Config, classes: ClassSplit | None) -> dict[str, Any]:
    """The same for a run that compares heads: the pass over all images takes most of the time."""
    source = open_data(config, classes)
    network = build_network(replace(config, network=replace(config.network, head="none")), source)
    train = source.dataset.part("train")
    parts = {"training": train, **source.tests}
    sample = train.take(np.arange(min(len(train), SAMPLE)))
    batches = iter(source.in_order(sample, getattr(network, "preprocessing", None)))
    next(batches)  # starting workers is not part of the speed
    began, images = time.monotonic(), 0
    device = resolve_device(config.device)
    z, _, _ = embed_batches(network.to(device), batches, device=device) if len(sample) > 64 else (train, 0, 0)
    images = len(z)
    total = sum(len(part) for part in parts.values())
    seconds = (time.monotonic() - began) / max(images, 1) * total
    sizes = train.class_sizes()
    facts = {
        "data": f"{config.data}: {len(train):,} training samples of {len(sizes):,} classes "
        f"({sizes.min()} to {sizes.max()} each)",
        "network": str(network.describe()),
        "heads": "frozen, whitening and a trained head, compared on held-out training classes",
        "memory": _memory(),
    }
    if len(sample) > 64:
        facts["time"] = f"about {_time(seconds / 3600)} for the features of {total:,} images, then the heads"
    return facts


def _memory() -> str:
    if torch.cuda.is_available():
        return f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB on the device at the peak"
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return f"{used / 2**30:.2f} GiB used at the peak, {free_memory() / 2**30:.1f} GiB free"


def _time(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes"
