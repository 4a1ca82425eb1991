"""From a configuration to the parts of a run: processes, data, network, loss, optimiser."""

import logging
import math
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from iaa.boosting import BoostedLoss
from iaa.config import Augment, Config, Optimizer
from iaa.data import Dataset
from iaa.data.sampler import BalancedSampler
from iaa.errors import need, unknown
from iaa.losses import Baseline, build_miner, with_memory
from iaa.losses import build as build_loss
from iaa.method.augment import IAA
from iaa.method.augmentation import Augmentation
from iaa.training.data_source import Batches, Source, open_source, trained_on

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_log = logging.getLogger("iaa.train")
PRECISION = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


@dataclass
class Task:
    """All that Algorithm 1 needs."""

    config: Config
    fabric: "Fabric"
    source: Source
    train: Dataset
    """The training rows: those of all readable images."""
    sampler: BalancedSampler
    batches: Batches
    """Training batches of the epoch the sampler is set to."""
    still: Batches
    """This rank's share of the training set (or of some of it) as test-time images, for the statistics."""
    network: nn.Module
    """The bare network."""
    model: nn.Module
    """The network as the processes train it."""
    criterion: BoostedLoss
    optimizer: Any

    def describe(self) -> str:
        """What is trained on what, in two lines."""
        samples, classes = len(self.train), len(self.train.class_sizes())
        data = f"{self.config.data}: {samples:,} training samples of {classes:,} classes"
        return f"{data}, {len(self.sampler)} steps an epoch\n{self.network.describe()}"  # type: ignore[operator]

    def put(self, images: Tensor) -> Tensor:
        """On the device, in the memory order that is wanted."""
        images = images.to(self.fabric.device, non_blocking=True)
        last = self.config.network.channels_last and images.ndim == 4
        return images.contiguous(memory_format=torch.channels_last) if last else images


def launch(config: Config) -> "Fabric":
    """Fabric with its processes started; under torchrun they are there already."""
    need("lightning_fabric", extra="train")
    from lightning_fabric import Fabric

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(config.accelerator, True):
        raise ValueError(f"accelerator {config.accelerator} is not there: use auto or cpu")
    if config.precision == "16" and (config.accelerator == "cpu" or not any(there.values())):
        raise ValueError("precision 16 needs an accelerator: use bf16 on the CPU")
    devices, nodes = config.devices, 1
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    fabric = Fabric(
        accelerator=config.accelerator,
        devices=devices,
        num_nodes=nodes,
        strategy="ddp" if devices * nodes > 1 else "auto",
        precision=PRECISION[config.precision],  # type: ignore[arg-type]
    )
    fabric.launch()
    return fabric


def assemble(config: Config, fabric: "Fabric", *, loss: Baseline | None = None) -> Task:
    """Everything in place; the same on every rank, save its share of the batches.

    ``loss`` takes the place of the one that the configuration names.
    """
    ranks = fabric.world_size
    if config.batch.classes % ranks:
        raise ValueError(
            f"batch.classes ({config.batch.classes}) must be a multiple of the {ranks} processes"
        )
    if loss is None:
        _loss(config, 2, 2)  # a wrong name is reported before any image is read
    source, network = open_source(config)
    train = source.dataset.part("train")
    for name, part in {"val": source.dataset.part("val"), **source.tests}.items():
        if len(part) and len(np.unique(part.labels)) < 2:
            raise ValueError(
                f"{config.data} has one class alone in its {name} part, where all neighbours are right: "
                "add a second one, or classes to draw it from"
            )
    if (shared := len(trained_on(source))) and fabric.is_global_zero:
        _log.warning("%d test classes are trained on as well: scores are not those of unseen classes", shared)
    samples = source.training(train)
    if len(samples.paths) < len(train):  # unreadable images were left out
        readable = set(samples.paths)
        train = train.take([path in readable for path in train.paths])
    sampler = BalancedSampler(
        samples.labels,
        classes=config.batch.classes // ranks,
        per_class=config.batch.per_class,
        small=config.batch.small,
        seed=config.seed,
        rank=fabric.global_rank,
        world_size=ranks,
    )
    looked_at = train
    if config.augment.samples is not None:
        looked_at = train.per_class(config.augment.samples, seed=config.seed)
    criterion = _criterion(config, int(train.labels.max()) + 1, network.dim, loss).to(fabric.device)
    optimizer = _optimizer(config.optimizer, network, criterion)
    wanted: nn.Module = network
    if config.network.channels_last:
        wanted = wanted.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if config.network.compile:
        wanted = torch.compile(wanted)  # type: ignore[assignment]
    model, optimizer = fabric.setup(wanted, optimizer)
    return Task(
        config,
        fabric,
        source,
        train,
        sampler,
        source.batches(samples, sampler),  # type: ignore[arg-type]
        source.in_order(looked_at, slice(fabric.global_rank, None, ranks), again=True),
        network,
        model,
        criterion,
        optimizer,
    )


def augmentation(options: Augment, num_classes: int, dim: int) -> IAA:
    """The method with the options of a run, or another generator in its place."""
    make = IAA
    if options.generator != "gaussian":
        make = partial(Augmentation, options.generator, mix=options.mix)  # type: ignore[assignment]
    return make(
        num_classes,
        dim,
        covariance=options.covariance,
        correction=options.correction,
        around=options.around,
        space=options.space,
        strength=options.strength,
        copies=options.copies,
        neighbors=options.neighbors,
        mean_width=options.mean_width,
        cov_width=options.cov_width,
        global_share=options.global_share,
        falloff=options.falloff,
        few=options.few,
        scale=None if options.scale == "raw" else options.scale,
        search=options.search,
        decay=options.decay,
        refresh_every=options.refresh_every,
    )


def rate(options: Optimizer, epoch: float, epochs: int) -> float:
    """What the learning rates are multiplied by at a moment, counted in epochs."""
    if epoch < options.warmup_epochs:
        return epoch / options.warmup_epochs
    if options.schedule == "steps":
        return options.drop_by ** sum(epoch >= drop for drop in options.drop_at)
    return (1 + math.cos(math.pi * epoch / epochs)) / 2 if options.schedule == "cosine" else 1.0


def _loss(config: Config, num_classes: int, dim: int) -> Baseline:
    try:
        chosen = build_loss(config.loss, num_classes=num_classes, dim=dim, **config.loss_options)
    except (TypeError, AssertionError) as error:  # build names the loss itself; here an option has no place
        raise ValueError(f"loss_options do not fit {config.loss}: {error}") from error
    if config.miner is not None:
        try:
            chosen = Baseline(chosen.loss, build_miner(config.miner, **config.miner_options))
        except TypeError as error:
            raise ValueError(f"miner_options do not fit {config.miner}: {error}") from error
    elif config.miner_options:
        raise ValueError(f"miner_options need a miner, got {config.miner_options} without one")
    return with_memory(chosen, dim=dim, size=config.memory) if config.memory else chosen


def _criterion(config: Config, num_classes: int, dim: int, given: Baseline | None = None) -> BoostedLoss:
    loss, miner = given or _loss(config, num_classes, dim)
    options = config.augment
    augment = augmentation(options, num_classes, dim)
    own_copies = config.loss == "triplet" if options.own_copies is None else options.own_copies
    return BoostedLoss(loss, augment, miner, anchors=options.anchors, own_copies=own_copies)


def _optimizer(options: Optimizer, network: Any, criterion: nn.Module) -> torch.optim.Optimizer:
    groups = network.parameter_groups(options.lr, options.head_factor, options.weight_decay)
    proxies = [parameter for parameter in criterion.parameters() if parameter.requires_grad]
    if proxies:
        lr = options.lr * options.head_factor
        # the losses normalise proxies: decay would only change how fast they turn
        groups.append({"name": "proxies", "params": proxies, "lr": lr, "weight_decay": 0.0})
    for group in groups:
        group["full_lr"] = group["lr"]
    if options.name == "sgd":
        return torch.optim.SGD(groups, lr=options.lr, momentum=0.9)
    makers: dict[str, type[torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    if options.name not in makers:
        raise unknown("optimizer.name", options.name, [*makers, "sgd"])
    return makers[options.name](groups, lr=options.lr)  # type: ignore[call-arg]
