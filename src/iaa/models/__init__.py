"""Networks that turn images into embeddings: the paper's backbones, Lite0, any timm model, a small one."""

from collections.abc import Callable
from pathlib import Path

from torch import nn

from iaa.errors import unknown
from iaa.models import networks, timm_models
from iaa.models import weights as files
from iaa.models.embedder import Embedder as Embedder
from iaa.models.embedder import Preprocessing as Preprocessing
from iaa.models.heads import HeadKind
from iaa.models.networks import Backbone

BACKBONES: dict[str, Callable[[], Backbone]] = {
    "googlenet": networks.googlenet,
    "resnet50": networks.resnet50,
    "bn_inception": networks.bn_inception,
    "lite0": timm_models.lite0,
    "convnet": networks.convnet,
}
"""Backbones by name; ``timm/NAME`` stands for any model of timm as well."""


def build(
    name: str,
    *,
    dim: int | None = 512,
    head: HeadKind = "linear",
    pretrained: bool = True,
    weights: Path | str | None = None,
    pool: str = "avg",
    freeze_bn: bool = False,
    freeze_backbone: bool = False,
    size: int | None = None,
) -> Embedder:
    """The backbone called ``name`` with a new ``head`` to ``dim`` dimensions; without a linear head if None.

    ``weights`` is a file for the backbone, or one of a whole ``Embedder``; without it ``pretrained`` fetches
    the published ones (``convnet`` has none). ``size`` changes the size of the images and scales ``resize``
    along. ``embedder.loaded`` says what was taken from which file.
    """
    backbone = _backbone(name, pool, size)
    preprocessing = backbone.preprocessing
    if size is not None:
        resize = round(preprocessing["resize"] * size / preprocessing["size"])
        preprocessing = Preprocessing(**{**preprocessing, "size": size, "resize": resize})
    embedder = Embedder(
        backbone.network,
        features=backbone.features,
        preprocessing=preprocessing,
        dim=dim,
        head=head,
        pool=pool,
        freeze_bn=freeze_bn,
        freeze_backbone=freeze_backbone,
        name=name,
    )
    embedder.own_size = backbone.preprocessing["size"]
    embedder.loaded = _load(embedder, backbone, weights, pretrained)
    return embedder


def _backbone(name: str, pool: str, size: int | None) -> Backbone:
    if name.startswith("timm/"):
        return timm_models.any_model(name.removeprefix("timm/"), pool=pool, size=size)
    if name not in BACKBONES:
        raise unknown("the backbone", name, [*BACKBONES, "timm/NAME"])
    return BACKBONES[name]()


def _load(
    embedder: Embedder, backbone: Backbone, weights: Path | str | None, pretrained: bool
) -> files.Loaded | None:
    if weights is None:
        if not pretrained or backbone.fetch is None:
            return None
        source = f"the published weights of {embedder.name}"
        return files.fit(
            backbone.network, backbone.rename(backbone.fetch()), source=source, unused=backbone.unused
        )
    state = files.read(weights)
    if any(key.startswith("backbone.") for key in state):  # a whole embedder's
        headless = isinstance(embedder.head, nn.Identity)
        return files.fit(embedder, state, source=str(weights), unused=("head.",) if headless else ())
    return files.fit(backbone.network, backbone.rename(state), source=str(weights), unused=backbone.unused)
