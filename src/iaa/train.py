"""Algorithm 1 of the paper, from the first line to the last: one run from data to a measured network."""

import logging
import random
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iaa.config import Config, load_config
from iaa.data import Dataset
from iaa.losses import Baseline
from iaa.training import checkpoint, distributed, finalize, runs, scoring
from iaa.training.checkpoint import Position
from iaa.training.data_source import Batches
from iaa.training.loggers import attach
from iaa.training.progress import display
from iaa.training.sanity import Health
from iaa.training.setup import Task, assemble, launch, rate
from iaa.training.signals import Interrupts

_log = logging.getLogger("iaa.train")


def train(
    config: Config | None = None,
    *,
    resume: str | Path | None = None,
    quiet: bool = False,
    loss: nn.Module | tuple[nn.Module, nn.Module | None] | None = None,
) -> Path:
    """Train, measure, and leave everything in a run directory, whose path is returned.

    ``loss`` is a loss of your own, or a (loss, miner) pair, instead of the one that the configuration names;
    to go on with an interrupted run it must be given again.

    ``resume`` names the directory of an interrupted run, which goes on where its last checkpoint stands; on
    a CPU it ends with the same bits as if it had never been interrupted.
    """
    if (config is None) == (resume is None):
        raise ValueError("give either a configuration or a run to resume")
    config = config or load_config(str(resume))
    if loss is not None:
        loss = Baseline(loss, None) if isinstance(loss, nn.Module) else Baseline(*loss)
        config = replace(config, loss=type(loss.loss).__name__)
    fabric = launch(config)
    task = assemble(config, fabric, loss=loss)
    leads = fabric.is_global_zero
    folder = Path(fabric.broadcast(str(resume or runs.create(config)) if leads else ""))
    position = checkpoint.restore(folder, task) if resume else Position()
    health, validation, augment = Health(config, tells=leads), _validation(task), task.criterion.augment
    steps, first = len(task.sampler), position.epoch * len(task.sampler) + position.step
    if leads:
        _log.info("%s\n%s", task.describe(), folder)
    began = saved = time.monotonic()
    before = position.seconds

    def save(epoch: int, step: int, told: dict[str, Any]) -> None:
        nonlocal saved
        position.epoch, position.step, position.told = epoch, step, told
        position.seconds = before + time.monotonic() - began
        position.log_bytes = log.flush()
        if leads:
            checkpoint.save(folder, task, position)
        saved = time.monotonic()

    with (
        runs.Log(folder / "log.jsonl" if leads else None, keep=position.log_bytes) as log,
        Interrupts(fabric) as interrupts,
        attach(config, folder, fabric) as tell_loggers,
        display(steps * config.epochs, done=first, quiet=quiet or not leads) as shown,
    ):
        for epoch in range(position.epoch, config.epochs):  # while not converged
            start = position.step if epoch == position.epoch else 0
            told = Told(**position.told) if start else Told()
            augment.strength = _strength(config, epoch)
            task.criterion.train(epoch >= config.augment.start_epoch)  # no synthetics before
            if start == 0 and _is_due(config, epoch):
                shown.say("class statistics")
                told.statistics += _estimate(task)  # Eq. 7-8 over the training set

            task.sampler.set_epoch(epoch, start=start)
            for step, (images, labels, _) in enumerate(task.batches, start):  # construct a mini-batch
                _set_rates(task, epoch + step / steps)
                _seed(config.seed, epoch, step)  # what is drawn at a step depends on nothing before it
                task.optimizer.zero_grad()
                z = task.model(task.put(images))  # compute embeddings
                z, labels = distributed.gather(z.float(), labels.to(z.device))
                health.embeddings(z, labels, epoch, step)
                if _streams(config, epoch):
                    told.statistics += _update(task, z, labels)  # Eq. 7-8 from the batch
                batch_loss = task.criterion(
                    z, labels
                )  # generate samples (Eq. 17), boost the loss (Eq. 18-20)
                value = told.step(batch_loss, len(z))
                health.loss(value, epoch, step)
                fabric.backward(batch_loss)
                distributed.average_gradients(task.criterion)
                if config.optimizer.clip:
                    fabric.clip_gradients(task.model, task.optimizer, max_norm=config.optimizer.clip)
                task.optimizer.step()  # optimise the parameters

                positives, negatives = task.criterion.synthetic_positives, task.criterion.synthetic_negatives
                pairs = {"positives": task.criterion.num_positives, "negatives": task.criterion.num_negatives}
                shares = {"synthetic_positives": positives, "synthetic_negatives": negatives}
                log.add(epoch=epoch, step=step, loss=value, **pairs, **shares)
                shown.step(epoch, config.epochs, value, (positives + negatives) / 2, told.speed)
                if interrupts.wanted or time.monotonic() - saved > 60 * config.run.checkpoint_minutes:
                    save(epoch, step + 1, told.so_far())
                    interrupts.stop_here(folder)

            distributed.share_buffers(task.network)
            numbers = told.numbers()
            if validation and ((epoch + 1) % config.run.validate_every == 0 or epoch + 1 == config.epochs):
                shown.say("held-out classes")
                numbers["val"] = _validate(task, validation, folder, position, epoch)
            log.add(epoch=epoch, **numbers)
            tell_loggers(epoch, numbers)
            save(epoch + 1, 0, {})

        shown.say("measuring")
        finalize.close(task, folder, position)
    return folder


@dataclass
class Told:
    """What the steps of an epoch amount to, those before an interruption included."""

    steps: int = 0
    loss: float = 0.0
    """Sum over steps."""
    images: int = 0
    seconds: float = 0.0
    """Before an interruption."""
    statistics: float = 0.0
    """Seconds spent on class statistics."""

    def __post_init__(self) -> None:
        self._began = time.monotonic() - self.seconds

    def step(self, loss: Tensor, images: int) -> float:
        """Add a step; its loss as a number."""
        value = float(loss.detach())
        self.steps, self.loss, self.images = self.steps + 1, self.loss + value, self.images + images
        return value

    @property
    def speed(self) -> float:
        """Images a second, statistics included."""
        return self.images / max(time.monotonic() - self._began, 1e-9)

    def so_far(self) -> dict[str, Any]:
        """To go on from."""
        self.seconds = time.monotonic() - self._began
        return asdict(self)

    def numbers(self) -> dict[str, Any]:
        """For the log."""
        seconds = {"seconds": time.monotonic() - self._began, "statistics_seconds": self.statistics}
        mean = self.loss / self.steps if self.steps else None  # checkpoints did not hold them once
        return {"loss": mean, "images": self.images, **seconds, "images_per_second": self.speed}


def _is_due(config: Config, epoch: int) -> bool:
    """Whether the statistics are to be taken by a pass before this epoch."""
    options = config.augment
    since = epoch - options.start_epoch
    return (
        options.refresh == "pass" and options.copies > 0 and since >= 0 and since % options.refresh_every == 0
    )


def _streams(config: Config, epoch: int) -> bool:
    """Whether the statistics are taken from the batches of this epoch."""
    options = config.augment
    return options.refresh == "stream" and options.copies > 0 and epoch >= options.start_epoch


def _estimate(task: Task) -> float:
    """Statistics of the whole training set as test-time images; how many seconds they took."""
    begun, augment, device = time.monotonic(), task.criterion.augment, task.fabric.device
    z, labels, _ = scoring.embed(task, task.network, task.still)
    augment.fit(z.to(device), labels.to(device))
    if distributed.active():
        augment.sync()
    return time.monotonic() - begun


def _update(task: Task, z: Tensor, labels: Tensor) -> float:
    """Statistics from the batch itself; how many seconds they took."""
    begun = time.monotonic()
    task.criterion.augment.update(z.detach(), labels)
    return time.monotonic() - begun


def _strength(config: Config, epoch: int) -> float:
    part = epoch / max(1, config.epochs - 1)
    return config.augment.strength * (1 - config.augment.strength_decay * part)


def _set_rates(task: Task, moment: float) -> None:
    factor = rate(task.config.optimizer, moment, task.config.epochs)
    for group in task.optimizer.param_groups:
        group["lr"] = group["full_lr"] * factor


def _seed(*numbers: int) -> None:
    """All generators of this process, from numbers alone; ranks draw alike."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def _validation(task: Task) -> tuple[Dataset, Batches] | None:
    """The held-out classes and their images, if there are any."""
    part = task.source.dataset.part("val")
    return (part, scoring.share(task, part, again=True)) if len(part) else None


def _validate(
    task: Task, validation: tuple[Dataset, Batches], folder: Path, position: Position, epoch: int
) -> dict[str, float]:
    """Scores on the held-out classes; the best weights so far are kept."""
    part, batches = validation
    found = scoring.scores(
        scoring.embeddings(task, task.network, part, batches=batches), part.ks, split="val"
    )
    if found["MAP@R"] > position.best:
        position.best, position.best_epoch = found["MAP@R"], epoch
        if task.fabric.is_global_zero and task.config.run.select == "best":
            finalize.save_tensors(folder / finalize.BEST, task.network)
    return found
