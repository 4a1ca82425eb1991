"""A dry run: the size and cost of a configuration, before hours are spent on it."""

from typing import Any

import torch

from iaa.config import Config
from iaa.data.dataset import ClassSplit
from iaa.data.image_cache import free_memory
from iaa.data_source import Source
from iaa.training.defaults import compares_heads, resolve
from iaa.training.model_ladder import open_ladder
from iaa.training.setup import assemble, launch
from iaa.training.time_estimate import IF_BETTER, Seconds, ladder_seconds, run_seconds

RUNGS = {
    "quick": "frozen and whitening",
    "normal": "frozen, whitening and a trained head",
    "high": "frozen, whitening and a trained head, then the whole network fine-tuned",
}


def dry_run(config: Config, *, classes: ClassSplit | None = None) -> dict[str, Any]:
    """Classes, samples, batches, parameters, memory, and the time extrapolated from a few real steps."""
    config = resolve(config)
    if compares_heads(config):
        ladder, frozen = open_ladder(config, classes)
        seconds = ladder_seconds(config, ladder, frozen)
        return {
            **_data(config, ladder),
            "network": frozen.describe(),
            "heads": f"{RUNGS[config.effort]}, compared on held-out training classes",
            "memory": _memory(),
            "time": _time(seconds),
        }
    fabric = launch(config)
    task = assemble(config, fabric, known=classes)
    seconds = run_seconds(task)
    weights = sum(p.numel() for p in task.network.parameters())
    learning = sum(p.numel() for p in task.network.parameters() if p.requires_grad)
    learning += sum(p.numel() for p in task.criterion.parameters())
    return {
        **_data(config, task.source),
        "network": f"{task.network.describe()}",  # type: ignore[operator]
        "parameters": f"{weights:,}, {learning:,} of them trained (including those of the loss)",
        "batches": f"{len(task.sampler)} per epoch, of up to {config.batch.classes} classes with "
        f"{config.batch.per_class} samples each, over {fabric.world_size} devices",
        "augmentation": f"{config.augment.copies} copies per sample, statistics by {config.augment.refresh}",
        "memory": _memory(),
        "time": _time(seconds, f" for {config.epochs} epochs"),
    }


def _data(config: Config, source: Source) -> dict[str, str]:
    train, val = source.dataset.part("train"), source.dataset.part("val")
    sizes = train.class_sizes()
    facts = {
        "data": f"{config.data}: {len(train):,} training samples of {len(sizes):,} classes "
        f"({sizes.min()} to {sizes.max()} each)",
    }
    parts = {"held out": val} if len(val) else {}
    parts |= {"test" if name == "test" else f"test, {name}": part for name, part in source.tests.items()}
    return facts | {
        name: f"{len(part):,} samples of {len(part.class_sizes()):,} classes" for name, part in parts.items()
    }


def _memory() -> str:
    if torch.cuda.is_available():
        return f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB on the device at the peak"
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return f"{used / 2**30:.2f} GiB used at the peak, {free_memory() / 2**30:.1f} GiB free"


def _time(seconds: Seconds, what: str = "") -> str:
    """The whole, and its parts.

    >>> _time({"training": 90.0, "validation": 0.0, "scores": 30.0})
    'about 2.0 minutes without the report: training 1.5, scores 0.5'
    >>> _time({"features": 30.0, "fine-tuning": 30.0, IF_BETTER: 60.0})
    'about 1.0 minutes without the report: features 0.5, fine-tuning 0.5; 1.0 more if that is better'
    """
    again = seconds.get(IF_BETTER, 0.0)
    seconds = {name: part for name, part in seconds.items() if name != IF_BETTER}
    total = sum(seconds.values())
    unit, size = ("hours", 3600) if total >= 3600 else ("minutes", 60)
    parts = ", ".join(f"{name} {part / size:.1f}" for name, part in seconds.items() if part >= size / 20)
    text = f"about {total / size:.1f} {unit}{what} without the report" + (f": {parts}" if parts else "")
    return f"{text}; {again / size:.1f} more if that is better" if again else text
