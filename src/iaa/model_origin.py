"""The network behind a run or behind an embeddings file, with exactly the weights that were used."""

import json
import warnings
from pathlib import Path
from typing import Any, cast

from torch import nn

from iaa import models
from iaa.config import Config
from iaa.models import Embedder, Preprocessing
from iaa.models.vector_head import Projection
from iaa.models.weights import read
from iaa.provenance import weights_hash

MODEL = "model.safetensors"


def embedder_of(folder: Path, config: Config) -> Embedder:
    """The trained network of a run on images."""
    network = config.network
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = models.build(
            config.model, dim=network.dim, pretrained=False, pool=network.pool, size=config.images.size
        )
    fill(model, folder / MODEL, _read(folder / MODEL))
    return model


def projection_of(folder: Path, config: Config) -> Projection:
    """The trained head of a run on vectors."""
    state = _read(folder / MODEL)
    first = state.get("head.0.weight")
    if first is None or first.ndim != 2:
        raise ValueError(f"{folder / MODEL} is no head on vectors: it lacks the matrix 'head.0.weight'")
    head = Projection(first.shape[1], dim=config.network.dim, hidden=config.network.hidden)
    fill(head, folder / MODEL, state)
    return head


def network_behind(meta: dict[str, Any]) -> Embedder:
    """The network that made an embeddings file, as its ``meta`` describes it; its weights must be the same.

    Raises ``ValueError`` where the file does not say, or where those weights cannot be had any more.
    """
    try:
        name, dim, pool = str(meta["model"]), int(meta["dim"]), str(meta["pool"])
        wanted, source = str(meta["weights_sha256"]), str(meta["weights"])
        preprocessing = _preprocessing(meta["preprocessing"])
    except (KeyError, TypeError) as error:
        raise ValueError("its header does not say which network its vectors came from") from error
    file = Path(source) if Path(source).is_file() else None
    for head in (None, dim):  # the bare features, or behind a head from that file
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            network = models.build(name, dim=head, weights=file, pool=pool, size=preprocessing["size"])
        if network.dim == dim and weights_hash(network) == wanted:
            network.preprocessing = preprocessing
            return network
    raise ValueError(f"the weights of {name} that made it ({source}) are not here any more, or have changed")


def run_around(file: Path) -> Path | None:
    """The run directory in which a file lies, or in whose folder of galleries."""
    for folder in (file.parent, file.parent.parent):
        if (folder / "config.json").is_file() and (folder / MODEL).is_file():
            return folder
    return None


def fill(network: nn.Module, path: Path, state: dict[str, Any]) -> None:
    """Load all weights of a file, which must be exactly those of the network."""
    own = network.state_dict()
    for key in own:
        if key not in state:
            raise ValueError(f"{path} does not belong to its config.json: it lacks {key}")
        if state[key].shape != own[key].shape:
            raise ValueError(
                f"{path} does not belong to its config.json: {key} must have shape {tuple(own[key].shape)}, "
                f"got {tuple(state[key].shape)}"
            )
    for key in state:
        if key not in own:
            raise ValueError(f"{path} does not belong to its config.json: {key} has no place there")
    network.load_state_dict(state)
    network.eval()


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(
            f"run {path.parent} has no {path.name}: is it unfinished? `iaa train --resume {path.parent}`"
        )
    return read(path)


def _preprocessing(given: dict[str, Any]) -> Preprocessing:
    plain = json.loads(json.dumps(given))
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
    return cast(Preprocessing, values)
