"""Where a run stands, in one safetensors file: weights, statistics, optimiser, epoch and step. No pickle."""

import errno
import json
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from iaa.training.runs import write
from iaa.training.setup import Task

FORMAT = "iaa-checkpoint-1"
FILE = "checkpoint.safetensors"


@dataclass
class Position:
    """What comes next, and what was best so far."""

    epoch: int = 0
    step: int = 0
    """Steps of this epoch that are done."""
    log_bytes: int = 0
    best: float = float("-inf")
    best_epoch: int = -1
    seconds: float = 0.0
    """Training time so far, interruptions left out."""
    told: dict[str, Any] = field(default_factory=dict)
    """What the steps of this epoch that are done amount to."""


def save(folder: Path, task: Task, position: Position) -> None:
    """Replace the run's checkpoint; a full disk leaves the last one as it was."""
    from safetensors.torch import save_file

    tensors = {f"network.{key}": value for key, value in task.network.state_dict().items()}
    tensors |= {f"criterion.{key}": value for key, value in task.criterion.state_dict().items()}
    for place, entry in _optimizer_state(task).items():
        for key, value in entry.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{place}.{key}"] = value
    tensors = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    header = {
        "format": FORMAT,
        "fingerprint": fingerprint(task),
        "position": json.dumps(vars(position)),
        "precision": json.dumps(_plain(task.fabric.strategy.precision.state_dict())),
    }
    try:
        write(folder / FILE, lambda beside: save_file(tensors, beside, header))
    except Exception as error:  # safetensors has its own for a full disk
        raise _disk(error, folder) from error


def restore(folder: Path, task: Task) -> Position:
    """Put the run where its checkpoint stands; at the beginning if there is none yet."""
    from safetensors import SafetensorError, safe_open

    path = folder / FILE
    if not path.exists():
        return Position()
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise ValueError(f"checkpoint {path} is half-written or no safetensors file: {error}") from error
    if header.get("format") != FORMAT:
        raise ValueError(f"{path} is no checkpoint of a run: its header lacks format = {FORMAT!r}")
    if header["fingerprint"] != fingerprint(task):
        raise ValueError(f"checkpoint {path} belongs to another run: its configuration or its data differ")
    task.network.load_state_dict(_under("network.", tensors))
    task.criterion.load_state_dict(_under("criterion.", tensors))
    _restore_optimizer(task, _under("optimizer.", tensors))
    task.fabric.strategy.precision.load_state_dict(json.loads(header["precision"]))
    return Position(**json.loads(header["position"]))


def fingerprint(task: Task) -> str:
    """Of the configuration and of what is sampled from."""
    return sha256((task.config.to_json() + task.sampler.fingerprint).encode()).hexdigest()[:16]


def _optimizer_state(task: Task) -> dict[int, dict[str, Any]]:
    state: dict[int, dict[str, Any]] = task.optimizer.optimizer.state_dict()["state"]
    return state


def _restore_optimizer(task: Task, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        place, _, key = name.partition(".")
        state.setdefault(int(place), {})[key] = value
    optimizer: torch.optim.Optimizer = task.optimizer.optimizer
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value.item() if isinstance(value, Tensor) else value for key, value in state.items()}


def _disk(error: Exception, folder: Path) -> Exception:
    """A full disk said in words; safetensors reports it as an error of its own kind."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if not full and "No space left" not in str(error) and "os error 28" not in str(error):
        return error
    last = "the last good checkpoint stays" if (folder / FILE).exists() else "there is no checkpoint yet"
    return OSError(
        f"the disk of {folder} is full: {last}; make room, then go on with `iaa train --resume {folder}`"
    )
