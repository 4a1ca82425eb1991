"""A dry run: the size and cost of a configuration, before hours are spent on it."""

import time
from typing import Any

import torch

from iaa.config import Config
from iaa.data.image_cache import free_memory
from iaa.training import distributed
from iaa.training.setup import assemble, launch

STEPS = 3


def dry_run(config: Config) -> dict[str, Any]:
    """Classes, samples, batches, parameters, memory, and the time extrapolated from a few real steps."""
    fabric = launch(config)
    task = assemble(config, fabric)
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


def _memory() -> str:
    if torch.cuda.is_available():
        return f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB on the device at the peak"
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return f"{used / 2**30:.2f} GiB used at the peak, {free_memory() / 2**30:.1f} GiB free"


def _time(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes"
