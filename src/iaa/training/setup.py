"""From a configuration to the parts of a run: processes, data, network, loss, optimiser."""

import atexit
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from iaa.boosting import BoostedLoss
from iaa.config import Augment, Config, Optimizer
from iaa.data import Dataset
from iaa.data.dataset import ClassSplit
from iaa.data.sampler import BalancedSampler
from iaa.data_source import (
    Batches,
    Source,
    VectorSource,
    build_network,
    check_classes,
    classes_in_both,
    open_data,
)
from iaa.embed import PRECISIONS
from iaa.errors import need, unknown
from iaa.losses import Baseline, build_miner, with_memory
from iaa.losses import build as build_loss
from iaa.losses import find as find_loss
from iaa.method.any_generator import Augmentation
from iaa.method.augment import IAA
from iaa.models import Preprocessing
from iaa.retrieval.embeddings import Embeddings
from iaa.training import distributed
from iaa.training.weight_average import WeightAverage

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_log = logging.getLogger("iaa.train")


@dataclass
class Task:
    """Everything Algorithm 1 works with."""

    config: Config
    fabric: "Fabric"
    source: Source
    train: Dataset
    """The training rows: those of all readable images."""
    sampler: BalancedSampler
    batches: Batches
    """Training batches of the epoch the sampler is set to."""
    statistics_batches: Batches
    """This rank's share of the training set (or of a sample) as test-time images, for the statistics."""
    network: nn.Module
    """The bare network."""
    preprocessing: Preprocessing | None
    """How images are prepared for it; None for vectors."""
    model: nn.Module
    """The network as wrapped for training, by DDP and the compiler."""
    criterion: BoostedLoss
    optimizer: Any
    """None where nothing is trained: the head is computed, or there is none."""
    average: WeightAverage | None = None
    """A moving average of the weights, which is scored instead of them."""
    on_images: Callable[[int], None] = lambda images: None
    """Called with the number of images whenever some have been embedded without gradients."""

    @contextmanager
    def scored_weights(self) -> Iterator[nn.Module]:
        """The network with the weights that count: averaged ones if there are any."""
        if self.average is None:
            yield self.network
        else:
            with self.average.applied(self.network):
                yield self.network

    def describe(self) -> str:
        """Data and network in two lines."""
        samples, classes = len(self.train), len(self.train.class_sizes())
        data = f"{self.config.data}: {samples:,} training samples of {classes:,} classes"
        return f"{data}, {len(self.sampler)} steps per epoch\n{self.network.describe()}"  # type: ignore[operator]

    def put(self, images: Tensor) -> Tensor:
        """Move images to the device, in the configured memory format."""
        images = images.to(self.fabric.device, non_blocking=True)
        last = self.config.network.channels_last and images.ndim == 4
        return images.contiguous(memory_format=torch.channels_last) if last else images


def check_device(config: Config) -> None:
    """Refuse a device that is not there, and a precision that it cannot train in."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(config.device, True):
        raise ValueError(f"device {config.device} is not available here: use auto or cpu")
    if config.precision == "fp16" and (config.device == "cpu" or not any(available.values())):
        raise ValueError("precision fp16 needs cuda or mps: use bf16 on the CPU")


def launch(config: Config) -> "Fabric":
    """Fabric with its processes started; torchrun has started them already."""
    check_device(config)
    need("lightning_fabric", extra="train")
    from lightning_fabric import Fabric

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    devices, nodes = config.devices, 1
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    mixed = PRECISIONS[config.precision] is not None
    fabric = Fabric(
        accelerator=config.device,
        devices=devices,
        num_nodes=nodes,
        strategy="ddp" if devices * nodes > 1 else "auto",
        precision=f"{config.precision.removeprefix('fp')}-{'mixed' if mixed else 'true'}",  # type: ignore[arg-type]
    )
    fabric.launch()
    if fabric.world_size > 1:
        atexit.register(distributed.leave)
    return fabric


def assemble(
    config: Config,
    fabric: "Fabric",
    *,
    data: Embeddings | None = None,
    loss: Baseline | None = None,
    known: ClassSplit | None = None,
) -> Task:
    """Build every part of a run; all ranks build the same, except for their share of the batches.

    ``data`` and ``loss`` take the place of what the configuration names; ``known`` are the classes of a run
    that is resumed.
    """
    ranks = fabric.world_size
    if config.batch.classes % ranks:
        raise ValueError(
            f"batch.classes ({config.batch.classes}) must be a multiple of the {ranks} processes"
        )
    if loss is None:  # so that a wrong name is reported before anything is read
        find_loss(config.loss, **config.loss_options)
    miner = _miner(config)
    source = open_data(config, known) if data is None else VectorSource(config, data, known)
    if known is not None:
        check_classes(source, known, config)
    source.check_images()
    list_unreadable(source)
    network = build_network(config, source)
    preprocessing: Preprocessing | None = getattr(network, "preprocessing", None)
    train = source.dataset.part("train")
    num_classes = int(train.labels.max()) + 1
    loss = loss or _loss(config, num_classes, network.dim, miner)
    for name, part in {"val": source.dataset.part("val"), **source.tests}.items():
        if len(part) and len(np.unique(part.labels)) < 2:
            raise ValueError(
                f"{config.data} has a single class in its {name} part, so every neighbour would be right: "
                "add a second class"
            )
    if (shared := len(classes_in_both(source))) and fabric.is_global_zero:
        _log.warning("%d test classes are trained on as well: scores are not those of unseen classes", shared)
    samples = source.training(train, preprocessing)
    sampler = BalancedSampler(
        samples.labels,
        classes=config.batch.classes // ranks,
        per_class=config.batch.per_class,
        small=config.batch.small,
        seed=config.seed,
        rank=fabric.global_rank,
        world_size=ranks,
    )
    estimated = train
    if config.augment.samples is not None:
        estimated = train.per_class(config.augment.samples, seed=config.seed)
    criterion = _criterion(config, num_classes, network.dim, loss).to(fabric.device)
    optimizer = _optimizer(config.optimizer, network, criterion) if config.trains else None
    wrapped: nn.Module = network
    if config.network.channels_last:
        wrapped = wrapped.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if config.network.compile:
        wrapped = torch.compile(wrapped)  # type: ignore[assignment]
    averaging = config.optimizer.average
    if optimizer is None:
        model: Any = fabric.to_device(wrapped)
    else:
        model, optimizer = fabric.setup(wrapped, optimizer)
    return Task(
        config,
        fabric,
        source,
        train,
        sampler,
        batches=source.batches(samples, sampler),  # type: ignore[arg-type]
        statistics_batches=source.in_order(
            estimated, preprocessing, slice(fabric.global_rank, None, ranks), again=True
        ),
        network=network,
        preprocessing=preprocessing,
        model=model,
        criterion=criterion,
        optimizer=optimizer,
        average=WeightAverage(network, decay=averaging) if config.trains and averaging else None,
    )


def list_unreadable(source: Source, start: int = 0) -> None:
    """Name the images that were left out, those from ``start`` on."""
    for error in source.unreadable[start:] if distributed.leads() else ():
        _log.warning("left out: %s", error)


def augmentation(options: Augment, num_classes: int, dim: int) -> IAA:
    """The method with the options of a run, or another generator in its place."""
    if options.generator == "gaussian":
        return IAA(num_classes, dim, **options.keywords())
    return Augmentation(options.generator, num_classes, dim, mix=options.mix, **options.keywords())


def _miner(config: Config) -> nn.Module | None:
    """The miner that a configuration names; None leaves the loss its own."""
    if config.miner is None:
        if config.miner_options:
            raise ValueError(f"miner_options need a miner, got {config.miner_options} without one")
        return None
    try:
        return build_miner(config.miner, **config.miner_options)
    except TypeError as error:
        raise ValueError(f"miner_options do not fit {config.miner}: {error}") from error


def _loss(config: Config, num_classes: int, dim: int, miner: nn.Module | None) -> Baseline:
    try:
        chosen = build_loss(config.loss, num_classes=num_classes, dim=dim, **config.loss_options)
    except (TypeError, AssertionError) as error:  # the name is known, but the loss refuses a value
        raise ValueError(f"loss_options do not fit {config.loss}: {error}") from error
    if config.miner is not None:
        chosen = Baseline(chosen.loss, miner)
    return with_memory(chosen, dim=dim, size=config.memory) if config.memory else chosen


def _criterion(config: Config, num_classes: int, dim: int, loss: Baseline) -> BoostedLoss:
    options = config.augment
    augment = augmentation(options, num_classes, dim)
    own_copies = config.loss == "triplet" if options.own_copies is None else options.own_copies
    return BoostedLoss(loss.loss, augment, loss.miner, anchors=options.anchors, own_copies=own_copies)


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
