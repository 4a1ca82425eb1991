"""Backbones: the paper's three and a small one, each with what an embedder needs to know of it."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from iaa.models.bn_inception import BNInception
from iaa.models.embedder import Preprocessing
from iaa.models.weights import State, fetching
from iaa.torchvision_compat import torchvision

_BN_INCEPTION_URL = "http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-239d2248.pth"


@dataclass(frozen=True)
class Backbone:
    """A network without its classifier, and all that an ``Embedder`` and its weights need to know of it."""

    network: nn.Module
    features: int
    preprocessing: Preprocessing
    fetch: Callable[[], State] | None = None
    """Its published weights; ``None`` if there are none and it starts from scratch."""
    unused: tuple[str, ...] = ()
    """Prefixes of published keys that belong to the classifier."""
    rename: Callable[[State], State] = lambda state: state
    """From the keys of published files to those of ``network``."""


class ConvNet(nn.Sequential):
    """A small network for images of 32 to 64 pixels, trained from scratch in minutes on a CPU.

    Four blocks of convolution, batch normalisation and ReLU give maps of 256 channels, 1/16 of the size.
    Every block halves the map by its stride: pooling after the convolution takes about three times as long.
    """

    features = 256

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for channels, width, kernel in ((3, 32, 5), (32, 64, 3), (64, 128, 3), (128, self.features, 3)):
            layers += [nn.Conv2d(channels, width, kernel, stride=2, padding=kernel // 2, bias=False)]
            layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        super().__init__(*layers)


def googlenet() -> Backbone:
    """GoogLeNet of torchvision without its auxiliary heads.

    Its weights expect images in [-1, 1]. torchvision takes the usual ImageNet normalisation and converts
    inside (``transform_input``); here the preprocessing says so directly, and nothing is converted.
    """
    models = torchvision().models
    whole = models.googlenet(weights=None, aux_logits=False, init_weights=False, transform_input=False)
    preprocessing = _paper(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    fetch = _torchvision("googlenet", models.GoogLeNet_Weights.IMAGENET1K_V1)
    return Backbone(_maps(whole), 1024, preprocessing, fetch, unused=("fc.", "aux1.", "aux2."))


def resnet50() -> Backbone:
    """ResNet50 of torchvision, with the first of its ImageNet weights: those of the paper's time."""
    models = torchvision().models
    preprocessing = _paper(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    fetch = _torchvision("resnet50", models.ResNet50_Weights.IMAGENET1K_V1)
    return Backbone(_maps(models.resnet50(weights=None)), 2048, preprocessing, fetch, unused=("fc.",))


def bn_inception() -> Backbone:
    """BN-Inception; the preprocessing makes RGB of 0..255 less its mean, and the network flips it to BGR."""

    def fetch() -> State:
        with fetching("bn_inception", _BN_INCEPTION_URL):
            options: Any = {"map_location": "cpu", "check_hash": True, "weights_only": True}
            state: State = torch.hub.load_state_dict_from_url(
                _BN_INCEPTION_URL, progress=sys.stderr.isatty(), **options
            )
        return state

    preprocessing = _paper(mean=(128 / 255, 117 / 255, 104 / 255), std=(1 / 255, 1 / 255, 1 / 255))
    return Backbone(BNInception(), 1024, preprocessing, fetch, unused=("last_linear.",))


def convnet() -> Backbone:
    """The small network for small images, from scratch."""
    preprocessing = Preprocessing(
        size=48,
        resize=54,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        interpolation="bilinear",
        aspect="squeeze",
    )
    network = ConvNet()
    return Backbone(network, network.features, preprocessing)


def _paper(*, mean: tuple[float, float, float], std: tuple[float, float, float]) -> Preprocessing:
    """The paper's images: resized to 256 x 256 whatever their shape, 224 x 224 seen (Section VI-B)."""
    return Preprocessing(size=224, resize=256, mean=mean, std=std, interpolation="bilinear", aspect="squeeze")


def _maps(whole: nn.Module) -> nn.Sequential:
    """A torchvision network up to its pooling, under the same state-dict keys."""
    maps = nn.Sequential()
    for name, module in whole.named_children():
        if name == "avgpool":
            break
        maps.add_module(name, module)
    return maps


def _torchvision(name: str, weights: Any) -> Callable[[], State]:
    def fetch() -> State:
        with fetching(name, weights.url):
            state: State = weights.get_state_dict(progress=sys.stderr.isatty(), check_hash=True)
        return state

    return fetch
