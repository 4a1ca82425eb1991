"""Algorithm 1 of the paper, from the first line to the last: a run from data to a scored network."""

import copy
import logging
import os
import random
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iaa.config import Config
from iaa.data.dataset import ClassSplit
from iaa.losses import Baseline
from iaa.losses import find as find_loss
from iaa.module_as_function import make_callable
from iaa.retrieval.embeddings import Embeddings
from iaa.runs import Run
from iaa.training import checkpoint, distributed, scoring
from iaa.training.checkpoint import Position
from iaa.training.closed_form import fit_head
from iaa.training.defaults import compares_heads, faster_in_bf16, resolve
from iaa.training.gradient_cache import embed_in_parts
from iaa.training.loop import TrainingLoop, open_run, recorded_threads
from iaa.training.model_ladder import climb
from iaa.training.schedules import estimates_before, rate_factor, streams_during, strength
from iaa.training.setup import Task, assemble, check_device, launch

_log = logging.getLogger("iaa.train")
EXAMPLE = 'iaa.train(iaa.Config(data="folder:photos"))'


def train(
    config: Config | None = None,
    *,
    resume: str | os.PathLike[str] | None = None,
    data: Embeddings | None = None,
    quiet: bool = False,
    loss: nn.Module | tuple[nn.Module, nn.Module | None] | None = None,
    classes: ClassSplit | None = None,
) -> Run:
    """Train and score a network, and leave everything in a run directory.

    ``resume`` names an interrupted run, which continues from its last checkpoint; on a CPU it ends with the
    same bits as if it had never been interrupted. ``data`` are embeddings to train a head on, in place of a
    file that the configuration names. ``loss`` is a loss of your own, or a (loss, miner) pair, in place of
    the configuration's; resuming needs both again. ``classes`` says which classes to train and to test on,
    instead of drawing them; a resumed run keeps its own.

    If the configuration leaves the head open (``network.head`` is ``auto``) and the network is pretrained,
    several heads are compared on held-out training classes and the best becomes the model.
    """
    if (config is None) == (resume is None):
        raise ValueError(f"give either a configuration or a run to resume, such as {EXAMPLE}")
    if config is not None and not isinstance(config, Config):
        raise TypeError(f"config must be an iaa.Config, such as {EXAMPLE}, got {config!r}")
    former = None if resume is None else Run(resume)
    config = former.config if former else config
    assert config is not None
    check_device(config)
    config = resolve(config)
    known = former.classes if former else classes
    if loss is not None:
        loss = Baseline(loss, None) if isinstance(loss, nn.Module) else Baseline(*loss)
        config = replace(config, loss=type(loss.loss).__name__)
    if compares_heads(config):
        if loss is None:  # so that a wrong name is reported before features are computed
            find_loss(config.loss, **config.loss_options)

        def train_rung(*arguments: Any, **options: Any) -> Run:
            return train(*arguments, loss=copy.deepcopy(loss), **options)  # a fold knows nothing of others

        return climb(config, train_rung, run=former, classes=known, quiet=quiet)
    if config.precision == "fp32" and faster_in_bf16(config):
        _log.info("--precision bf16 would train this network faster: the CPU multiplies such numbers itself")
    with recorded_threads(former):
        task = assemble(config, launch(config), data=data, loss=loss, known=known)
        with open_run(task, former) as run:
            position = checkpoint.restore(run, task) if former else Position()
            with TrainingLoop(task, run, position, quiet=quiet) as loop:
                if not position.started:
                    fit_head(task)
                if config.trains:
                    _algorithm_1(task, loop)
                loop.finish()
    return run


def _algorithm_1(task: Task, loop: TrainingLoop) -> None:
    config, augment, options = task.config, task.criterion.augment, task.config.augment
    for epoch, start in loop.epochs():  # while not converged
        augment.strength = strength(options, epoch, config.epochs)
        task.criterion.train(epoch >= options.start_epoch)  # no synthetics before
        if start == 0 and estimates_before(options, augment, epoch):
            loop.show("class statistics")
            loop.totals.statistics += _estimate(task)  # Eq. 7-8 over the training set

        for step, images, labels in loop.batches(epoch, start):  # construct a mini-batch
            _set_rates(task, epoch + step / loop.steps)
            _seed(config.seed, epoch, step)  # random numbers of a step depend on no earlier step
            task.optimizer.zero_grad()
            z = embed_in_parts(task.model, images, micro=config.batch.micro)  # compute embeddings
            z, labels = distributed.gather(z.float(), labels.to(z.device))
            loop.sanity.check_embeddings(z, labels, epoch, step)
            if streams_during(options, epoch):
                loop.totals.statistics += _update(task, z, labels)  # Eq. 7-8 from the batch
            loss = task.criterion(z, labels)  # generate samples (Eq. 17), boost the loss (Eq. 18-20)
            value = float(loss.detach())
            loop.sanity.check_loss(value, epoch, step)
            task.fabric.backward(loss)
            distributed.average_gradients(task.criterion)
            if config.optimizer.clip:
                task.fabric.clip_gradients(task.model, task.optimizer, max_norm=config.optimizer.clip)
            task.optimizer.step()  # optimise the parameters
            if task.average is not None:
                task.average.update(task.network)
            loop.end_step(epoch, step, value, len(z))
        loop.end_epoch(epoch)


def _estimate(task: Task) -> float:
    """Estimate statistics over the training set as test-time images; returns the seconds it took."""
    began, augment, device = time.monotonic(), task.criterion.augment, task.fabric.device
    z, labels, _ = scoring.embed(task, task.network, task.statistics_batches)
    augment.fit(z.to(device), labels.to(device))
    if distributed.active():
        augment.sync()
    return time.monotonic() - began


def _update(task: Task, z: Tensor, labels: Tensor) -> float:
    """Update statistics from the batch; returns the seconds it took."""
    began = time.monotonic()
    task.criterion.augment.update(z.detach(), labels)
    return time.monotonic() - began


def _set_rates(task: Task, epoch: float) -> None:
    factor = rate_factor(task.config.optimizer, epoch, task.config.epochs)
    for group in task.optimizer.param_groups:
        group["lr"] = group["full_lr"] * factor


def _seed(*numbers: int) -> None:
    """Seed all generators of this process from the numbers alone, the same on every rank."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


make_callable(__name__, train)
