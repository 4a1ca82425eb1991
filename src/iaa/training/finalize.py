"""The end of a run: the chosen weights, their embeddings, and scores next to those without training."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from iaa.config import Config
from iaa.data_source import build_network, classes_in_both
from iaa.files import read_tensors, write_json, write_tensors
from iaa.models import Embedder
from iaa.runs import BEST, METRICS, MODEL, STATISTICS, Run
from iaa.training import scoring
from iaa.training.checkpoint import Position
from iaa.training.setup import Task
from iaa.training.workload import measures_own_size


def finalize(task: Task, run: Run, position: Position) -> None:
    """Score the chosen epoch and write ``model``, ``statistics``, ``embeddings`` and ``metrics.json``."""
    config = task.config
    table: dict[str, scoring.TestScores] = _untrained(task) if config.run.untrained else {}
    if task.average is not None:
        task.average.copy_to(task.network)
    epoch = config.epochs - 1
    if config.trains and config.run.select == "best" and position.best_epoch != epoch:
        table["trained, last epoch"] = scoring.score_tests(task, task.network)
        task.fabric.barrier()
        task.network.load_state_dict(read_tensors(run / BEST)[0])
        epoch = position.best_epoch
    meta = run.origin(task.network, epoch=epoch, seed=config.seed)
    table["trained"] = scoring.score_tests(task, task.network, run=run, meta=meta)
    if task.fabric.is_global_zero:
        save_module(run, MODEL, task.network)
        save_module(run, STATISTICS, task.criterion.augment)
        write_json(run / METRICS, _metrics(task, table, epoch, position))


def save_module(run: Run, name: str, module: nn.Module) -> None:
    """Write the state of a module to a file of the run."""
    write_tensors(run / name, module.state_dict(), {"format": "pt"})


def _metrics(
    task: Task, table: dict[str, scoring.TestScores], epoch: int, position: Position
) -> dict[str, Any]:
    validation = {"MAP@R": position.best, "epoch": position.best_epoch} if position.best_epoch >= 0 else None
    return {
        "test": table["trained"],
        "table": table,
        "epoch": epoch,
        "select": task.config.run.select,
        "validation": validation,
        "training_seconds": position.seconds,
        "train": {
            "samples": len(task.train),
            "classes": len(task.train.class_sizes()),
            "tested_as_well": len(classes_in_both(task.source)),
        },
    }


def _untrained(task: Task) -> dict[str, scoring.TestScores]:
    """Scores of raw features and of the network before training (its pooled features: the head is random).

    A pretrained network is also measured at the image size it was made for, where training takes another.
    """
    name, raw = task.source.raw_features()
    table = {name: scoring.score_tests(task, raw)}
    if task.preprocessing is None:  # vectors: there is no network before the head
        return table
    configs = [task.config, at_own_size(task.config)] if measures_own_size(task) else [task.config]
    for config in configs:
        network = _bare_network(task, config)
        start = "untrained" if network.loaded is None else "pretrained"
        note = f" ({network.preprocessing['size']} px)" if len(configs) > 1 else ""
        table[f"{start} {config.model}{note}"] = scoring.score_tests(task, network)
    return table


def at_own_size(config: Config) -> Config:
    """The configuration with images of the size that the network was made for."""
    return replace(config, images=replace(config.images, size=None))


def _bare_network(task: Task, config: Config) -> Embedder:
    """The network as it was before training, without its random head."""
    with torch.random.fork_rng():
        network = build_network(config, task.source).to(task.fabric.device)
    assert isinstance(network, Embedder)
    network.head, network.dim = nn.Identity(), network.features
    return network
