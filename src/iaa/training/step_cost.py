"""The cost of synthetics in a run: real steps with its data, network, loss and optimiser (Fig. 11)."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from iaa.analysis.cost import Cost, measure
from iaa.data.image_dataset import Batch
from iaa.runs import Run
from iaa.training import scoring
from iaa.training.setup import Task, assemble, launch


def run_cost(
    run: str | os.PathLike[str],
    *,
    copies: Sequence[int] = (0, 1, 2, 3, 4, 5),
    rounds: int = 15,
    tick: Callable[[float], None] = lambda done: None,
) -> Cost:
    """Time and memory of a step for every number of copies, on one batch of the run's training data.

    The network has random weights, which do not change what a step costs. Nothing in the run is changed.
    """
    run = Run(run)
    network = replace(run.config.network, pretrained=False, weights=None)
    config = replace(run.config, network=network)
    task = assemble(config, launch(config))
    inputs, labels, rows = next(iter(task.batches))
    images, labels = task.put(inputs), labels.to(task.fabric.device)
    augment = task.criterion.augment
    z = torch.randn(len(task.train), augment.dim, device=task.fabric.device)  # any values take as long
    known = z, torch.from_numpy(task.train.labels).to(z.device)
    augment.fit(*known)

    def step(number: int) -> None:
        augment.copies = number
        loss = task.criterion(task.model(images).float(), labels)
        task.fabric.backward(loss)
        task.optimizer.step()
        task.optimizer.zero_grad()  # here, so that gradients count as memory of the step that made them

    def statistics() -> None:
        augment.fit(*known).variance.sum().item()

    def embed() -> None:
        scoring.embed(task, task.network, [Batch(inputs, labels.cpu(), rows)])

    return measure(
        step,
        statistics,
        embed,
        copies=copies,
        rounds=rounds,
        steps_per_epoch=len(task.sampler),
        pass_share=len(labels) / len(task.train),
        device=task.fabric.device.type,
        what=_notes(task, len(labels), run),
        tick=tick,
    )


def _notes(task: Task, batch: int, run: Run) -> list[str]:
    config, device, classes = task.config, task.fabric.device, task.criterion.augment.num_classes
    threads = f", {torch.get_num_threads()} threads" if device.type == "cpu" else ""
    return [
        f"Run {run.name}: {config.loss} on {config.data}, {task.network.describe()}.",  # type: ignore[operator]
        f"A step: one batch of {batch} samples through network, synthetics, loss, gradients and optimiser; "
        "reading images is not counted.",
        f"Statistics: {len(task.train):,} samples of {classes:,} classes in {config.network.dim} dimensions, "
        "estimated and corrected once.",
        f"The pass before it: {len(task.train):,} samples through the network without gradients, timed on "
        "one batch and scaled; reading is not counted.",
        f"On {device}{threads}, precision {config.precision}. Memory: what a step allocates, at its peak.",
    ]
