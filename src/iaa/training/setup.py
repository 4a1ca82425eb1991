"""From a configuration to the parts of a run: processes, data, network, loss, optimiser."""

import inspect
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from iaa.boosting import BoostedLoss
from iaa.config import Config, Optimizer
from iaa.data import Dataset
from iaa.data.sampler import BalancedSampler
from iaa.data_source import Batches, Source, build_network, classes_in_both, open_data
from iaa.embed import PRECISIONS
from iaa.errors import need, unknown
from iaa.losses import PAIRS, PROXIES
from iaa.losses import build as build_loss
from iaa.method.augment import IAA
from iaa.models import Preprocessing

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


def launch(config: Config) -> "Fabric":
    """Fabric with its processes started; torchrun has started them already."""
    need("lightning_fabric", extra="train")
    from lightning_fabric import Fabric

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(config.device, True):
        raise ValueError(f"device {config.device} is not available here: use auto or cpu")
    if config.precision == "fp16" and (config.device == "cpu" or not any(available.values())):
        raise ValueError("precision fp16 needs cuda or mps: use bf16 on the CPU")
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
    return fabric


def assemble(config: Config, fabric: "Fabric") -> Task:
    """Build every part of a run; all ranks build the same, except for their share of the batches."""
    ranks = fabric.world_size
    if config.batch.classes % ranks:
        raise ValueError(
            f"batch.classes ({config.batch.classes}) must be a multiple of the {ranks} processes"
        )
    check_loss(config)  # before any image is read
    source = open_data(config)
    network = build_network(config, source)
    preprocessing: Preprocessing | None = getattr(network, "preprocessing", None)
    train = source.dataset.part("train")
    for name, part in {"val": source.dataset.part("val"), **source.tests}.items():
        if len(part) and len(np.unique(part.labels)) < 2:
            raise ValueError(
                f"{config.data} has a single class in its {name} part, so every neighbour would be right: "
                "add a second class"
            )
    if (shared := len(classes_in_both(source))) and fabric.is_global_zero:
        _log.warning("%d test classes are trained on as well: scores are not those of unseen classes", shared)
    samples = source.training(train, preprocessing)
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
    estimated = train
    if config.augment.samples is not None:
        estimated = train.per_class(config.augment.samples, seed=config.seed)
    criterion = _criterion(config, int(train.labels.max()) + 1, network.dim).to(fabric.device)
    optimizer = _optimizer(config.optimizer, network, criterion)
    wrapped: nn.Module = network
    if config.network.channels_last:
        wrapped = wrapped.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if config.network.compile:
        wrapped = torch.compile(wrapped)  # type: ignore[assignment]
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
    )


def check_loss(config: Config) -> None:
    """Raise for a loss or an option of it that does not exist."""
    known = {**PAIRS, **PROXIES}
    if config.loss not in known:
        raise unknown("loss", config.loss, known)
    parameters = inspect.signature(known[config.loss]).parameters.values()
    options = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for name in config.loss_options:
        if name not in options:
            raise unknown(f"loss_options of {config.loss}", name, options)


def _criterion(config: Config, num_classes: int, dim: int) -> BoostedLoss:
    loss, miner = build_loss(config.loss, num_classes=num_classes, dim=dim, **config.loss_options)
    options = config.augment
    augment = IAA(num_classes, dim, **options.keywords())
    own_copies = config.loss == "triplet" if options.own_copies is None else options.own_copies
    return BoostedLoss(loss, augment, miner, anchors=options.anchors, own_copies=own_copies)


def _optimizer(options: Optimizer, network: Any, criterion: nn.Module) -> torch.optim.Optimizer:
    groups = network.parameter_groups(options.lr, options.head_factor, options.weight_decay)
    proxies = [parameter for parameter in criterion.parameters() if parameter.requires_grad]
    if proxies:
        lr = options.lr * options.head_factor
        groups.append({"name": "proxies", "params": proxies, "lr": lr, "weight_decay": 0.0})
    for group in groups:
        group["full_lr"] = group["lr"]
    if options.name == "sgd":
        return torch.optim.SGD(groups, lr=options.lr, momentum=0.9)
    makers: dict[str, type[torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    if options.name not in makers:
        raise unknown("optimizer.name", options.name, [*makers, "sgd"])
    return makers[options.name](groups, lr=options.lr)  # type: ignore[call-arg]
