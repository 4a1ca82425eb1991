"""The trained network of a run, built empty and filled from its file."""

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from iaa import models
from iaa.config import CONFIG_FILE, Config
from iaa.files import read_tensors
from iaa.models import Embedder
from iaa.models.heads import VectorHead


def trained_network(config: Config, file: Path) -> Embedder | VectorHead:
    """The network of a configuration in evaluation mode, with the weights of ``model.safetensors``."""
    state, _ = read_tensors(file)
    network = _empty(config) if config.vectors_file is None else _empty_head(config, state, file)
    fill(network, file, state)
    return network


def fill(network: nn.Module, file: Path, state: dict[str, Tensor]) -> None:
    """Load weights, which must be exactly those of the network in name, shape and type."""
    own = network.state_dict()
    problem = f"{file} does not match its {CONFIG_FILE}:"
    for key, tensor in own.items():
        if key not in state:
            raise ValueError(f"{problem} it lacks {key}")
        if state[key].shape != tensor.shape:
            expected, got = tuple(tensor.shape), tuple(state[key].shape)
            raise ValueError(f"{problem} {key} must have shape {expected}, got {got}")
        if state[key].dtype != tensor.dtype:
            raise ValueError(f"{problem} {key} must hold {tensor.dtype}, got {state[key].dtype}")
    for key in state:
        if key not in own:
            raise ValueError(f"{problem} it has {key}, which the network does not have")
    network.load_state_dict(state)
    network.eval()


def _empty(config: Config) -> Embedder:
    """The network of a configuration, its weights still to be filled in; no random number is drawn."""
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore", UserWarning)
        return models.build(
            config.model,
            dim=config.network.dim,
            head=config.network.head_kind,
            pretrained=False,
            pool=config.network.pool,
            size=config.images.size,
        )


def _empty_head(config: Config, state: dict[str, Tensor], file: Path) -> VectorHead:
    first = state.get("head.0.weight")
    if first is None or first.ndim != 2:
        raise ValueError(f"{file} is not a head on vectors: it lacks the matrix 'head.0.weight'")
    with torch.random.fork_rng(devices=[]):
        network = config.network
        return VectorHead(first.shape[1], dim=network.dim, hidden=network.hidden, head=network.head_kind)
