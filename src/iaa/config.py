"""The configuration of a training run: frozen dataclasses, whose defaults train on emoji."""

import json
import os
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from iaa.files import parse_json
from iaa.json_dataclass import build, check_choices

CONFIG_FILE = "config.json"
"""Name of the configuration in a run directory."""


@dataclass(frozen=True)
class Split:
    """How classes are split."""

    per_class: int | None = None
    """Keep at most this many training images of every class."""
    test_share: float | None = None
    """Share of the classes to test on, for your own data without a split (0.2)."""
    val_classes: float = 0.0
    """Share of the training classes held out for validation; they are not trained on."""
    size: str | None = None
    """Test set of vehicleid: small, medium or large; all three if not given."""
    protocol: str | None = None
    """Protocol of vehicleid: leave-one-out or one-gallery."""


@dataclass(frozen=True)
class Images:
    """How images become tensors."""

    size: int | None = None
    """Side of the crop in pixels; what the network was made for if None."""
    crop: Literal["shift", "zoom"] = "shift"
    """Training crops: of a fixed size at a random position, or of a random size and shape as well."""
    workers: int | None = None
    """Processes that load images; one per free core if None."""
    cache: Literal["auto", "on", "off"] = "auto"
    """Keep decoded images in memory; auto does where they fit."""
    on_bad_image: Literal["raise", "skip"] = "raise"
    """Stop at an unreadable image before anything starts, or leave it out."""


@dataclass(frozen=True)
class Network:
    """The embedding network."""

    dim: int | None = None
    """Dimensions of an embedding; if None, 128 for convnet and vectors, else 512 (at most the features)."""
    head: Literal["auto", "linear", "whitening", "none"] = "auto"
    (
        "linear is trained, whitening is computed from the class covariances (Eq. 14) without training, "
        "none leaves the features as they are; auto compares them on held-out classes if the network is "
        "pretrained."
    )
    head_start: Literal["random", "whitening"] = "random"
    """What a linear head starts from."""
    hidden: tuple[int, ...] = ()
    """Widths of the hidden layers of a head on precomputed vectors; none is a linear head."""
    pretrained: bool = True
    """Start from published weights where there are any."""
    weights: str | None = None
    """Start from this file (.safetensors, .pth) instead."""
    pool: Literal["avg", "avg+max"] = "avg"
    """Pooling before the head."""
    freeze_bn: bool = False
    """Keep the statistics of batch normalisation as they are."""
    freeze_backbone: bool = False
    """Train the head alone."""
    channels_last: bool = True
    """Use the channels-last memory format, faster on many machines."""
    compile: bool = False
    """Compile the network with torch.compile."""

    @property
    def head_kind(self) -> Literal["linear", "power", "whitening", "none"]:
        """The layer behind ``head`` and ``head_start``."""
        if self.head in ("auto", "linear"):
            return "power" if self.head_start == "whitening" else "linear"
        return "whitening" if self.head == "whitening" else "none"


@dataclass(frozen=True)
class BatchOptions:
    """The balanced batch of a step, over all devices together."""

    classes: int = 32
    """Classes in a batch."""
    per_class: int = 4
    """Images of every class."""
    small: Literal["take", "repeat"] = "take"
    """A class with fewer images gives what it has, or repeats them."""
    micro: int | None = None
    (
        "Images that go through the network at a time, with the gradients of the whole batch: less memory, a "
        "second forward pass."
    )


Generator = Literal["gaussian", "symmetry", "expansion", "proxy", "mixup", "residual", "spread"]


@dataclass(frozen=True)
class Augment:
    """Intra-class adaptive augmentation with neighbour correction."""

    generator: Generator = "gaussian"
    """How synthetics are made: gaussian is the paper's; docs/generators.md describes the others."""
    copies: int = 3
    """Synthetics per original (the paper's M); 0 is the baseline."""
    strength: float = 0.2
    (
        "Variance of the noise as a share of the class's (lambda, Eq. 17). `iaa.IAA` and the paper's presets "
        "keep 0.8 (0.6); 0.2 scored higher on held-out emoji classes."
    )
    mix: float | None = None
    """Parameter of the Beta distribution of the generators proxy and mixup; that of their papers if None."""
    strength_decay: float = 0.0
    """Share of the strength that is lost, linearly, by the last epoch."""
    covariance: Literal["diagonal", "full", "global", "identity"] = "diagonal"
    """What noise follows: a class's diagonal or full covariance, the global one, or the identity."""
    correction: bool = True
    """Classes with few samples borrow covariance from their neighbours (Eq. 11-16)."""
    around: Literal["sample", "mean"] = "sample"
    """Synthetics lie around each sample or around its class mean."""
    space: Literal["raw", "unit"] = "raw"
    """Statistics and noise before or after normalising to unit length."""
    neighbors: int = 25
    """Classes that lend (K, Eq. 11)."""
    mean_width: float = 1.0
    """Width of the kernel over mean distances (sigma_m, Eq. 13)."""
    cov_width: float = 1.0
    """Width of the kernel over covariance distances (sigma_cv, Eq. 13)."""
    global_share: float = 0.1
    """Share of the global covariance in what is borrowed (gamma, Eq. 15)."""
    falloff: float = 0.1
    """How fast borrowing falls with the size of a class (beta, Eq. 16)."""
    few: float = 40
    """Classes of more samples borrow nothing (tau, Eq. 16)."""
    scale: Literal["minmax", "raw"] = "minmax"
    """Distances of a class brought to [0, 1], or raw as Eq. 13 is printed."""
    search: Literal["exact", "approximate"] = "exact"
    """How neighbours are found; approximate needs faiss."""
    own_copies: bool | None = None
    """Whether a sample and its own copies may be a positive pair; None is yes for the triplet loss alone."""
    anchors: Literal["auto", "originals", "all"] = "auto"
    """What is compared with the candidates; auto asks the loss."""
    refresh: Literal["pass", "stream"] = "pass"
    """Statistics by a pass over the training set (the paper), or from the batches as they come."""
    refresh_every: int = 4
    """Epochs between two passes."""
    samples: int | None = None
    """Samples per class that a pass uses at most, drawn by the seed; all if None."""
    decay: float = 0.9
    """While streaming, how much of a class's past is kept when it comes again."""
    start_epoch: int = 0
    """Epoch, counted from 0, with which augmentation begins."""

    def correction_keywords(self) -> dict[str, Any]:
        """The arguments of ``iaa.correct``; without correction no class borrows."""
        names = ("neighbors", "mean_width", "cov_width", "global_share", "falloff", "search")
        few, scale = self.few if self.correction else 0, None if self.scale == "raw" else self.scale
        return {**{name: getattr(self, name) for name in names}, "few": few, "scale": scale}

    def keywords(self) -> dict[str, Any]:
        """The arguments of ``iaa.IAA``."""
        names = ("covariance", "correction", "around", "space", "strength", "copies", "few", "decay")
        own = {name: getattr(self, name) for name in (*names, "refresh_every")}
        return {**self.correction_keywords(), **own}


@dataclass(frozen=True)
class Optimizer:
    """The optimiser and its schedule."""

    name: Literal["adam", "adamw", "sgd"] = "adam"
    """The algorithm."""
    lr: float = 1e-3
    """Learning rate of the network."""
    head_factor: float = 1.0
    """The head, and proxies of a loss, learn this many times faster."""
    weight_decay: float = 4e-4
    """Weight decay."""
    schedule: Literal["steps", "cosine", "constant"] = "cosine"
    """The rate falls in steps, along a cosine down to 0, or never."""
    drop_at: tuple[int, ...] = (40, 60)
    """Epochs at which a schedule of steps drops the rate."""
    drop_by: float = 0.2
    """What it is multiplied by there."""
    warmup_epochs: float = 0.0
    """Epochs over which the rate grows from 0."""
    clip: float = 0.0
    """Clip the gradient norm of the network to this; 0 does not clip."""
    average: float = 0.0
    """Decay of a moving average of the weights, such as 0.99, which is scored instead of them; 0 is off."""


@dataclass(frozen=True)
class RunOptions:
    """Where results go, and what is saved along the way."""

    out: str = "runs"
    """Folder of all runs."""
    name: str | None = None
    """Name of the run directory, with -1, -2, ... added if it is taken; data, loss and a number if None."""
    select: Literal["last", "best"] = "last"
    """Which epoch is scored: the last, or the best on the held-out classes (needs split.val_classes)."""
    validate_every: int = 1
    """Epochs between two validations on the held-out classes."""
    checkpoint_minutes: float = 5.0
    """Minutes between two checkpoints; one is written after every epoch as well."""
    keep_every: int = 0
    """Epochs between two saved weights-EPOCH.safetensors; 0 keeps only the last weights."""
    untrained: bool = True
    """Also score raw pixels and the network before training."""
    logger: Literal["auto", "tensorboard", "csv", "wandb", "mlflow", "none"] = "auto"
    """A logger in addition to log.jsonl; auto writes TensorBoard files if that is installed."""


LEAST = {
    "epochs": 1,
    "devices": 1,
    "seed": 0,
    "memory": 0,
    "augment.copies": 0,
    "augment.strength": 0,
    "augment.neighbors": 1,
    "augment.refresh_every": 1,
    "batch.micro": 1,
    "images.size": 1,
    "network.dim": 1,
    "optimizer.weight_decay": 0,
    "run.keep_every": 0,
    "run.validate_every": 1,
    "split.per_class": 1,
}
"""Smallest values of fields."""


@dataclass(frozen=True)
class Config:
    """A training run; the default trains a small network on emoji in minutes."""

    data: str = "emoji"
    """cub, cars, sop, inshop, vehicleid, emoji, folder:DIR, table:FILE or embeddings:FILE."""
    root: str | None = None
    """Folder with the files of a benchmark, or what the paths of a table are relative to."""
    model: str = "auto"
    (
        "googlenet, bn_inception, resnet50, lite0, convnet or timm/NAME; not for embeddings:FILE. auto is "
        "the best pretrained network that is available, and convnet for emoji."
    )
    effort: Literal["quick", "normal", "high"] = "normal"
    """With network.head auto: compare heads that need no training, train a head too, or fine-tune as well."""
    loss: str = "multi_similarity"
    (
        "contrastive, triplet, multi_similarity, triplet_distance, margin, circle, norm_softmax, proxy_nca, "
        "soft_triple, or any loss of pytorch-metric-learning, such as proxy_anchor or fast_ap."
    )
    loss_options: dict[str, bool | int | float | str] = field(default_factory=dict)
    """Options of the loss, such as: margin 0.1."""
    miner: str | None = None
    """A miner of pytorch-metric-learning, such as batch_hard, or none; that of the loss if not given."""
    miner_options: dict[str, bool | int | float | str] = field(default_factory=dict)
    """Options of the miner, such as: epsilon 0.2."""
    memory: int = 0
    """Originals of previous batches to compare with as well (cross-batch memory, XBM); 0 is none."""
    epochs: int = 20
    """Rounds over the training set."""
    seed: int = 0
    """Decides weights, batches, crops, noise and every random split."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """What to train on; auto is the first available of cuda, mps and cpu."""
    devices: int = 1
    """How many of them, one process each; torchrun sets it itself."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Full precision, or mixed precision in bf16, or in fp16 with scaled gradients."""
    split: Split = field(default_factory=Split)
    images: Images = field(default_factory=Images)
    network: Network = field(default_factory=Network)
    batch: BatchOptions = field(default_factory=BatchOptions)
    augment: Augment = field(default_factory=Augment)
    optimizer: Optimizer = field(default_factory=Optimizer)
    run: RunOptions = field(default_factory=RunOptions)

    def __post_init__(self) -> None:
        check_choices(self)
        for name, least in LEAST.items():
            value = attrgetter(name)(self)
            if value is not None and not value >= least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if not self.optimizer.lr > 0:
            raise ValueError(f"optimizer.lr must be more than 0, got {self.optimizer.lr}")
        if not 0 <= self.optimizer.average < 1:
            raise ValueError(f"optimizer.average must lie in [0, 1), got {self.optimizer.average}")
        for name in ("split.test_share", "split.val_classes"):
            share = attrgetter(name)(self)
            if share and not 0 < share < 1:
                raise ValueError(
                    f"{name} is a share of the classes and must lie between 0 and 1, got {share}"
                )
        if self.batch.classes < 2 or self.batch.per_class < 1:
            raise ValueError(
                f"a batch needs classes >= 2 and per_class >= 1, "
                f"got {self.batch.classes} and {self.batch.per_class}"
            )
        if self.batch.classes % self.devices:
            raise ValueError(
                f"batch.classes ({self.batch.classes}) must be a multiple of devices ({self.devices}): "
                "every device takes as many classes"
            )
        if self.augment.samples is not None and (self.augment.samples < 1 or self.augment.refresh != "pass"):
            raise ValueError(
                f"augment.samples must be at least 1 and needs augment.refresh=pass, "
                f"got {self.augment.samples} and {self.augment.refresh}"
            )
        if 0 < self.memory < self.batch.classes * self.batch.per_class:
            raise ValueError(
                f"memory must hold at least a batch of {self.batch.classes * self.batch.per_class} samples, "
                f"got {self.memory}"
            )
        if self.run.select == "best" and not self.split.val_classes:
            raise ValueError(
                "run.select='best' needs split.val_classes, such as 0.1: test classes never choose the epoch"
            )

    @property
    def vectors_file(self) -> Path | None:
        """The embeddings file to train a head on (``data="embeddings:FILE"``); None for images."""
        kind, _, path = self.data.partition(":")
        return Path(path).expanduser() if kind == "embeddings" and path else None

    @property
    def trains(self) -> bool:
        """Whether any weights are trained, rather than a head computed or left out."""
        return self.network.head in ("auto", "linear")

    @property
    def network_name(self) -> str:
        """The trained network in a word; a head on vectors has no backbone."""
        return self.model if self.vectors_file is None else "head on vectors"

    def to_json(self) -> str:
        """As ``config.json`` of a run."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, *, source: str = "the configuration") -> "Config":
        """The inverse of ``to_json``; what is not given keeps its default.

        >>> Config.from_json(Config(seed=3).to_json()) == Config(seed=3)
        True
        """
        config: Config = build(cls, parse_json(text, source), source)
        return config


def load_config(path: str | os.PathLike[str]) -> Config:
    """Read a ``config.json``, or that of a run directory."""
    path = Path(path)
    file = path / CONFIG_FILE if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise FileNotFoundError(f"{path} is not a run directory: it has no {CONFIG_FILE}")
    if not file.is_file():
        raise FileNotFoundError(f"no configuration at {file}")
    try:
        return Config.from_json(file.read_text(encoding="utf-8"), source=str(file))
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text: {error}") from error
