"""Algorithm 1 of the paper, from the first line to the last: one run from data to a measured network."""

import logging
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from iaa.config import Config, load_config
from iaa.training import checkpoint, closing, measure, runs, together
from iaa.training.assembly import Task, assemble, launch, rate
from iaa.training.checkpoint import Position
from iaa.training.health import Health
from iaa.training.interrupts import Interrupts
from iaa.training.loggers import attach
from iaa.training.progress import display

_log = logging.getLogger("iaa")


def train(config: Config | None = None, *, resume: str | Path | None = None, quiet: bool = False) -> Path:
    """Train, measure, and leave everything in a run directory, whose path is returned.

    ``resume`` names the directory of an interrupted run, which goes on where its last checkpoint stands; on
    a CPU it ends with the same bits as if it had never been interrupted.
    """
    if (config is None) == (resume is None):
        raise ValueError("give either a configuration or a run to resume")
    config = config or load_config(str(resume))
    fabric = launch(config)
    task = assemble(config, fabric)
    made = (Path(resume) if resume else runs.create(config)) if fabric.is_global_zero else None
    folder = Path(fabric.broadcast(str(made)))
    position = checkpoint.restore(folder, task) if resume else Position(log_bytes=0)
    log = runs.Log(folder / "log.jsonl", keep=position.log_bytes) if fabric.is_global_zero else None
    loggers = attach(config, folder, fabric)
    health, validation = Health(config), _validation(task)
    steps = len(task.sampler)
    begun, saved = time.monotonic() - position.seconds, time.monotonic()

    def record(**values: Any) -> None:
        if log is not None:
            log.add(**values)

    def save(epoch: int, step: int) -> None:
        nonlocal saved
        position.epoch, position.step, position.seconds = epoch, step, time.monotonic() - begun
        if log is not None:
            position.log_bytes = log.flush()
            checkpoint.save(folder, task, position)
        saved = time.monotonic()

    with (
        Interrupts(fabric) as interrupts,
        display(steps * config.epochs, done=position.epoch * steps + position.step, quiet=quiet) as shown,
    ):
        for epoch in range(position.epoch, config.epochs):
            start = position.step if epoch == position.epoch else 0
            clock, losses, images = time.monotonic(), [], 0
            statistics = 0.0
            task.criterion.augment.strength = _strength(config, epoch)
            if start == 0 and _is_due(task, epoch):
                shown.say("class statistics")
                statistics = _estimate(task, epoch)  # Eq. 7-8 over the training set, then Eq. 11-16

            task.sampler.set_epoch(epoch, start=start)
            for step, (pictures, labels, _) in enumerate(task.batches, start):
                _set_rates(task, epoch + step / steps)
                _seed(config.seed, epoch, step)  # what is drawn at a step depends on nothing before it
                task.optimizer.zero_grad()
                z = task.model(task.put(pictures))
                z, labels = together.gather(z.float(), labels.to(z.device))
                health.embeddings(z, labels, epoch, step)
                if config.augment.refresh == "stream" and epoch >= config.augment.start_epoch:
                    statistics += _update(task, z, labels)
                loss = task.criterion(z, labels)  # synthetics by Eq. 17, the loss by Eq. 18, 19 or 20
                value = float(loss.detach())
                health.loss(value, epoch, step)
                fabric.backward(loss)
                together.average_gradients(list(task.criterion.parameters()))
                if config.optimizer.clip:
                    fabric.clip_gradients(task.model, task.optimizer, max_norm=config.optimizer.clip)
                task.optimizer.step()

                losses.append(value)
                images += len(z)
                synthetic = task.criterion.synthetic_positives, task.criterion.synthetic_negatives
                record(
                    epoch=epoch,
                    step=step,
                    loss=value,
                    synthetic_positives=synthetic[0],
                    synthetic_negatives=synthetic[1],
                )
                speed = images / max(time.monotonic() - clock, 1e-9)
                shown.step(
                    epoch=epoch, epochs=config.epochs, loss=value, synthetic=sum(synthetic) / 2, speed=speed
                )
                if interrupts.wanted or time.monotonic() - saved > 60 * config.run.checkpoint_minutes:
                    save(epoch, step + 1)
                    interrupts.stop_here(folder)

            seconds = time.monotonic() - clock
            told: dict[str, Any] = {"loss": float(np.mean(losses)) if losses else None, "images": images}
            told |= {"seconds": seconds, "statistics_seconds": statistics}
            if validation and ((epoch + 1) % config.run.validate_every == 0 or epoch + 1 == config.epochs):
                shown.say("held-out classes")
                told["val"] = _validate(task, validation, folder, position, epoch)
            record(epoch=epoch, **told)
            loggers(epoch, told)
            save(epoch + 1, 0)

        shown.say("measuring")
        closing.close(task, folder, position)
    if log is not None:
        log.close()
    return folder


def _is_due(task: Task, epoch: int) -> bool:
    options = task.config.augment
    since = epoch - options.start_epoch
    return (
        options.refresh == "pass" and options.copies > 0 and since >= 0 and task.criterion.augment.due(since)
    )


def _estimate(task: Task, epoch: int) -> float:
    """Statistics of the whole training set as test-time images; how many seconds they took."""
    begun = time.monotonic()
    z, labels, _ = measure.embed(task, task.network, task.still)
    task.criterion.augment.fit(z.to(task.fabric.device), labels.to(task.fabric.device))
    if together.active():
        task.criterion.augment.sync()
    return time.monotonic() - begun


def _update(task: Task, z: torch.Tensor, labels: torch.Tensor) -> float:
    """Statistics from the batch itself; how many seconds they took."""
    if task.config.augment.copies == 0:
        return 0.0
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


def _validation(task: Task) -> tuple[Any, Any] | None:
    """The held-out classes and their pictures, if there are any."""
    part = task.source.dataset.part("val")
    return (part, measure.share(task, part, again=True)) if len(part) else None


def _validate(
    task: Task, validation: tuple[Any, Any], folder: Path, position: Position, epoch: int
) -> dict[str, float]:
    """Scores on the held-out classes; the best weights so far are kept."""
    part, batches = validation
    found = measure.scores(
        measure.embeddings(task, task.network, part, batches=batches), part.ks, split="val"
    )
    if found["MAP@R"] > position.best:
        position.best, position.best_epoch = found["MAP@R"], epoch
        if task.fabric.is_global_zero and task.config.run.select == "best":
            closing.save_tensors(folder / closing.BEST, task.network)
    return found
