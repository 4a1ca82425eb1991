"""Checkpoints in one safetensors file: weights, statistics, optimiser, epoch and step. No pickle."""

import json
import logging
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor

from iaa.files import parse_json, read_tensors, write_tensors
from iaa.json_dataclass import build
from iaa.runs import CHECKPOINT, Run
from iaa.training.epoch_totals import EpochTotals
from iaa.training.setup import Task

_log = logging.getLogger("iaa.train")

FORMAT = "iaa-checkpoint-1"
KEYS = ("format", "fingerprint", "samples", "position", "averaged", "precision")


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
    """Training time so far, without interruptions."""
    totals: EpochTotals = field(default_factory=EpochTotals)
    """Sums over the steps of this epoch that are done."""

    @property
    def started(self) -> bool:
        """Whether any step is done."""
        return self.epoch > 0 or self.step > 0


def save(run: Run, task: Task, position: Position) -> None:
    """Replace the run's checkpoint; if the disk is full, the last one stays."""
    tensors = {f"network.{key}": value for key, value in task.network.state_dict().items()}
    tensors |= {f"criterion.{key}": value for key, value in task.criterion.state_dict().items()}
    for index, state in task.optimizer.optimizer.state_dict()["state"].items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{key}"] = value
    if task.average is not None:
        tensors |= {f"average.{key}": value for key, value in task.average.average.items()}
    header = {
        "format": FORMAT,
        "fingerprint": fingerprint(task),
        "samples": task.sampler.fingerprint,
        "position": json.dumps(asdict(position)),
        "averaged": str(0 if task.average is None else task.average.steps),
        "precision": json.dumps(_plain(task.fabric.strategy.precision.state_dict())),
    }
    write_tensors(run / CHECKPOINT, tensors, header)


def restore(run: Run, task: Task) -> Position:
    """Bring the run back to its checkpoint; to the beginning if there is none yet."""
    path = run / CHECKPOINT
    if not path.exists():
        return Position()
    tensors, header = read_tensors(path)
    if header.get("format") != FORMAT or any(key not in header for key in KEYS):
        raise ValueError(f"{path} is not a checkpoint: its header lacks format = {FORMAT!r} or other entries")
    if header["fingerprint"] != fingerprint(task):
        raise ValueError(f"{path} belongs to another run: its configuration or its data differ")
    position = _position(header["position"], str(path))
    if header["samples"] != task.sampler.fingerprint and position.started:
        _log.warning(
            "images of training classes were added or removed since this run stopped: epoch %d begins again "
            "with those there are now",
            position.epoch + 1,
        )
        position.step = 0
        if not position.started:
            return Position()
    try:
        task.network.load_state_dict(_below("network.", tensors))
        task.criterion.load_state_dict(_below("criterion.", tensors))
        _restore_optimizer(task, _below("optimizer.", tensors))
        if task.average is not None:
            averaged = {"steps": int(header["averaged"]), "average": _below("average.", tensors)}
            task.average.load_state_dict(averaged)
        task.fabric.strategy.precision.load_state_dict(parse_json(header["precision"], str(path)))
        return position
    except (RuntimeError, TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} does not fit this run: {' '.join(str(error).split())}") from error


def fingerprint(task: Task) -> str:
    """Of the configuration and of the classes that are trained on."""
    names = [task.train.class_names[label] for label in np.unique(task.train.labels)]
    return sha256((task.config.to_json() + json.dumps(names)).encode()).hexdigest()[:16]


def _position(text: str, source: str) -> Position:
    names = [entry.name for entry in fields(Position)]
    position: Position = build(Position, parse_json(text, source, required=names), source)
    return position


def _restore_optimizer(task: Task, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = value
    optimizer: torch.optim.Optimizer = task.optimizer.optimizer
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value.item() if isinstance(value, Tensor) else value for key, value in state.items()}
