"""Weights from files, read safely and checked against the network, and published ones from the internet."""

import socket
import textwrap
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from iaa.errors import first_line, unknown
from iaa.files import read_tensors

State = dict[str, Tensor]
_WRAPPERS = ("state_dict", "model_state_dict", "model")
_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
_TIMEOUT = 10.0  # seconds without an answer
_PROBE_TIMEOUT = 3.0


class Loaded(NamedTuple):
    """What became of a state dict: how many entries were taken, and which were missing or unexpected."""

    source: str
    taken: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]

    def __str__(self) -> str:
        text = f"{self.source}: {self.taken} entries taken"
        for what, keys in (("missing", self.missing), ("unexpected", self.unexpected)):
            text += f"; {len(keys)} {what} ({_some(keys)})" if keys else ""
        return text


def read(path: Path | str) -> State:
    """The tensors of a ``.safetensors`` file, or of a ``.pth`` file read with ``weights_only=True``."""
    path = Path(path)
    if path.suffix not in _SUFFIXES:
        raise unknown(f"the ending of the weights file {path}", path.suffix, _SUFFIXES)
    if not path.is_file():
        raise FileNotFoundError(f"weights file {path} does not exist")
    if path.suffix == ".safetensors":
        return read_tensors(path)[0]
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged pickles fail in many ways
        if isinstance(error, OSError | MemoryError):
            raise
        raise ValueError(
            f"{path} holds no plain tensors that can be read safely: {first_line(error)}"
        ) from error
    return _plain(content, path)


def fit(network: nn.Module, state: State, *, source: str, unused: tuple[str, ...] = ()) -> Loaded:
    """Load the entries that match by name, warn about the rest, refuse a state dict that matches nothing.

    Keys that begin with one of ``unused`` (the published classifier, say) are ignored.
    """
    own = network.state_dict()
    state = {key: value for key, value in state.items() if not key.startswith(unused)} if unused else state
    taken = {key: _matching(key, state[key], own[key], source) for key in own if key in state}
    if not taken:
        raise ValueError(
            f"{source} matches nothing of this network: it holds {_some(tuple(state))}; "
            f"expected {_some(tuple(own))}"
        )
    missing = (key for key in own if key not in taken and not key.endswith("num_batches_tracked"))
    loaded = Loaded(source, len(taken), tuple(missing), tuple(key for key in state if key not in own))
    network.load_state_dict(taken, strict=False)
    if loaded.missing or loaded.unexpected:
        warnings.warn(str(loaded), stacklevel=2)
    return loaded


@contextmanager
def fetching(name: str, url: str) -> Iterator[None]:
    """Let a library download inside; its errors become one line that names the file."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT)
    try:
        yield
    except (OSError, RuntimeError, HTTPException) as error:
        cause = textwrap.shorten(f"{type(error).__name__}: {error}", 120, placeholder=" …")
        raise OSError(
            f"the published weights of {name} could not be fetched ({cause}): "
            f"get {url} elsewhere and give it as weights=FILE, or start from scratch with pretrained=False"
        ) from error
    finally:
        socket.setdefaulttimeout(before)


@contextmanager
def hub() -> Iterator[None]:
    """Use the cache of huggingface_hub alone where its host does not answer: it would retry for a minute."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    if not urllib.request.getproxies() and not _answers(constants.ENDPOINT):
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=_PROBE_TIMEOUT).close()
    except OSError:
        return False
    return True


def _matching(key: str, value: Tensor, own: Tensor, source: str) -> Tensor:
    """The entry with the shape of the network's own, unless shape or kind of number do not match."""
    if value.is_floating_point() != own.is_floating_point() or value.is_complex():
        raise ValueError(f"{key} of {source} must hold {_kind(own)}, got {_kind(value)}")
    if value.shape == (1, *own.shape):  # batch normalisation as the oldest converted files hold it
        value = value[0]
    if value.shape != own.shape:
        raise ValueError(f"{key} of {source} must have shape {tuple(own.shape)}, got {tuple(value.shape)}")
    return value


def _plain(content: object, path: Path) -> State:
    """The state dict inside what training scripts save: under a key of its own, names behind ``module.``."""
    for wrapper in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} must hold a state dict, got {type(content).__name__}")
    state = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
    if all(key.startswith("module.") for key in state):
        state = {key.removeprefix("module."): value for key, value in state.items()}
    return state


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _some(keys: tuple[str, ...]) -> str:
    return ", ".join(keys[:3]) + (", …" if len(keys) > 3 else "") or "no tensors"
