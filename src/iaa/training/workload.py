"""The work of a run, counted before it is done: steps, and images embedded before, between and after them."""

from dataclasses import dataclass

import numpy as np

from iaa.models import Embedder
from iaa.training.schedules import estimates_before
from iaa.training.setup import Task


@dataclass(frozen=True)
class Workload:
    """What one rank has to do."""

    steps: int
    """Steps of the optimiser."""
    images: dict[str, int]
    """Images that go through a network without gradients, by what for."""


def workload(task: Task, *, epoch: int = 0, step: int = 0) -> Workload:
    """The work that is left of a run from a step on: training, and the scores before and after it."""
    config, options = task.config, task.config.augment
    epochs = range(epoch, config.epochs) if config.trains else range(0)
    estimates = sum(
        estimates_before(options, task.criterion.augment, number) and not (step and number == epoch)
        for number in epochs
    )
    every, last = config.run.validate_every, config.epochs
    validations = sum((number + 1) % every == 0 or number + 1 == last for number in epochs)
    sizes = task.train.class_sizes()
    estimated = int(np.minimum(sizes, sizes if options.samples is None else options.samples).sum())
    tests = sum(map(len, task.source.tests.values()))
    images = {
        "head": estimated * (computes_head(task) and epoch == step == 0),
        "statistics": estimated * estimates,
        "validation": len(task.source.dataset.part("val")) * validations,
        "raw features": tests * config.run.untrained,
        "own size": tests * measures_own_size(task),
        "tests": tests * (1 + (config.run.untrained and task.preprocessing is not None)),
    }
    if config.trains and config.run.select == "best":
        images["tests"] += tests  # the last epoch, next to the best one
    ranks = task.fabric.world_size
    return Workload(
        len(epochs) * len(task.sampler) - step, {name: -(-n // ranks) for name, n in images.items()}
    )


def computes_head(task: Task) -> bool:
    """Whether the features of the training images are needed first, for the head or what it starts from."""
    return task.config.network.head_kind in ("power", "whitening")


def measures_own_size(task: Task) -> bool:
    """Whether the pretrained network is also scored at the image size that it was made for."""
    network = task.network
    if not isinstance(network, Embedder) or network.loaded is None:
        return False
    return task.config.run.untrained and network.own_size != network.preprocessing["size"]
