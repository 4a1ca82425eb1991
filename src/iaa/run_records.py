"""A new run directory, and the files of a run: log, scores, environment, and the trained network."""

import contextlib
import itertools
import json
import os
import platform
import re
import subprocess
import time
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from iaa import models
from iaa.config import CONFIG_FILE, Config
from iaa.files import read_json, read_tensors
from iaa.models import Embedder
from iaa.models.heads import VectorHead

PACKAGES = (
    *("iaa", "torch", "torchvision", "timm", "pytorch-metric-learning", "lightning-fabric", "numpy"),
    "safetensors",
)


def new_folder(config: Config) -> Path:
    """Make a run directory: ``NAME`` if it was given and is free, otherwise ``NAME-1``, ``NAME-2`` ..."""
    parent = Path(config.run.out).expanduser()
    parent.mkdir(parents=True, exist_ok=True)
    baseline = "" if config.augment.copies else "-baseline"
    name = config.run.name or f"{config.data.partition(':')[0]}-{config.loss}{baseline}"
    name = re.sub(r"[^\w.-]+", "-", name)
    numbers = (re.fullmatch(re.escape(name) + r"-(\d+)", path.name) for path in parent.iterdir())
    number = max((int(match[1]) for match in numbers if match), default=0) + 1
    names = itertools.chain([name] * bool(config.run.name), (f"{name}-{n}" for n in itertools.count(number)))
    while True:
        folder = parent / next(names)
        with contextlib.suppress(FileExistsError):  # it is taken, or another process was quicker
            folder.mkdir()
            return folder


class LogFile:
    """``log.jsonl``: a line per step and per epoch; without a path nothing is written.

    ``keep`` is the number of bytes that belong to a checkpoint; the lines after them are dropped.
    """

    def __init__(self, path: Path | None, *, keep: int = 0) -> None:
        self._file = None if path is None else open(path, "ab")  # noqa: SIM115 (open as long as the run)
        if self._file is not None:
            self._file.truncate(keep)
            self._file.seek(keep)

    def __enter__(self) -> "LogFile":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, **values: Any) -> None:
        """Append a line."""
        if self._file is not None:
            self._file.write((json.dumps(values) + "\n").encode())

    def flush(self) -> int:
        """Bring all lines to the disk; returns the size of the file."""
        if self._file is None:
            return 0
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()


def read_metrics(file: Path) -> dict[str, Any]:
    """A ``metrics.json`` that holds everything a finished run writes."""
    metrics = read_json(file)
    number = (int, float)
    expected: dict[str, Any] = {"test": dict, "train": dict, "table": dict, "epoch": int}
    for name, kind in (expected | {"training_seconds": number, "select": str}).items():
        if not isinstance(metrics.get(name), kind):
            raise ValueError(f"{file} is damaged: {name!r} is missing or has the wrong type")
    for name in ("samples", "classes"):
        if not isinstance(metrics["train"].get(name), int):
            raise ValueError(f"{file} is damaged: {name!r} of 'train' is missing or not a whole number")
    table = list(metrics["table"].values())
    for part, scores in metrics["test"].items():
        rows = [scores, *(row.get(part) if isinstance(row, dict) else None for row in table)]
        if not all(isinstance(row, dict) and row.keys() >= scores.keys() for row in rows):
            raise ValueError(
                f"{file} is damaged: 'table' must hold the scores that 'test' holds for {part!r}"
            )
        if not all(isinstance(row[metric], number) for row in rows for metric in scores):
            raise ValueError(f"{file} is damaged: the scores of {part!r} must be numbers")
    return metrics


def read_log(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a ``log.jsonl``; a last line that is still being written is left out."""
    with open(file, encoding="utf-8", errors="replace") as lines:
        for number, text in enumerate(lines, 1):
            if not text.endswith("\n"):
                return
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"line {number} of {file} is not valid JSON: {error}") from error
            if not isinstance(row, dict) or not isinstance(row.get("epoch"), int):
                raise ValueError(f"line {number} of {file} is not a row of a run's log: {text.strip()[:60]}")
            yield row


def environment(*, seed: int) -> dict[str, Any]:
    """The content of ``surroundings.json``."""
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "commit": _commit(),
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        "threads": torch.get_num_threads(),
        "seed": seed,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of this package, with ``-dirty`` if its own files have changed since."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit, changes = (
            subprocess.run([*git, *command], capture_output=True, text=True, check=True).stdout.strip()
            for command in (("describe", "--always", "--abbrev=10"), ("status", "--porcelain", "."))
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + "-dirty" * bool(changes)


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


def image_network(config: Config, *, pretrained: bool, weights: str | None = None) -> Embedder:
    """The network for images that a configuration describes, with weights as ``models.build`` loads them."""
    network = config.network
    embedder = models.build(
        config.model,
        dim=network.dim,
        head=network.head_kind,
        pretrained=pretrained,
        weights=weights,
        pool=network.pool,
        size=config.images.size,
        freeze_bn=network.freeze_bn,
        freeze_backbone=network.freeze_backbone,
    )
    embedder.channels_last = network.channels_last
    return embedder


def _empty(config: Config) -> Embedder:
    """The network of a configuration, its weights still to be filled in; no random number is drawn."""
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore", UserWarning)
        return image_network(config, pretrained=False)


def _empty_head(config: Config, state: dict[str, Tensor], file: Path) -> VectorHead:
    first = state.get("head.0.weight")
    if first is None or first.ndim != 2:
        raise ValueError(f"{file} is not a head on vectors: it lacks the matrix 'head.0.weight'")
    with torch.random.fork_rng(devices=[]):
        network = config.network
        return VectorHead(first.shape[1], dim=network.dim, hidden=network.hidden, head=network.head_kind)
