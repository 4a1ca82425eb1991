"""The end of a run: the chosen weights, their embeddings, and what they are worth beside doing nothing."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from iaa.config import network_name
from iaa.provenance import weights_hash
from iaa.training import scoring
from iaa.training.checkpoint import Position
from iaa.training.data_source import Source, open_source, trained_on
from iaa.training.runs import write, write_json
from iaa.training.setup import Task

BEST, MODEL, STATISTICS = "best.safetensors", "model.safetensors", "statistics.safetensors"


def save_tensors(path: Path, module: nn.Module) -> None:
    """The state of a module, whole or not at all."""
    from safetensors.torch import save_file

    tensors = {key: value.detach().cpu().contiguous() for key, value in module.state_dict().items()}
    write(path, lambda beside: save_file(tensors, beside, {"format": "pt"}))


def origin(source: Source, network: nn.Module) -> dict[str, str]:
    """What embeddings have to say to be compared and searched: their network, and where ids start."""
    found = {"weights_sha256": weights_hash(network)}
    return found if source.root is None else {**found, "root": source.root}


def close(task: Task, folder: Path, position: Position) -> dict[str, Any]:
    """Measure the chosen epoch and write ``model``, ``statistics``, ``embeddings`` and ``metrics.json``."""
    config, writes = task.config, task.fabric.is_global_zero
    rows: dict[str, scoring.Scores] = {}
    if config.run.untrained:
        name, plain = task.source.plain()
        rows[name] = scoring.score_tests(task, plain)
        rows.update(_untrained(task))
    epoch = config.epochs - 1
    if config.run.select == "best" and position.best_epoch != epoch:
        rows["trained, last epoch"] = scoring.score_tests(task, task.network)
        from safetensors.torch import load_file

        task.fabric.barrier()
        task.network.load_state_dict(load_file(folder / BEST))
        epoch = position.best_epoch
    meta = {
        "data": config.data,
        "model": network_name(config),
        "run": folder.name,
        "epoch": epoch,
        "seed": config.seed,
        **origin(task.source, task.network),
    }
    trained = scoring.score_tests(task, task.network, keep=folder, meta=meta)
    rows["trained"] = trained
    metrics = {
        "test": trained,
        "table": rows,
        "epoch": epoch,
        "select": config.run.select,
        "validation": {"MAP@R": position.best, "epoch": position.best_epoch}
        if position.best_epoch >= 0
        else None,
        "training_seconds": position.seconds,
        "train": {
            "samples": len(task.train),
            "classes": len(task.train.class_sizes()),
            "tested_as_well": len(trained_on(task.source)),
        },
    }
    if writes:
        save_tensors(folder / MODEL, task.network)
        save_tensors(folder / STATISTICS, task.criterion.augment)
        write_json(folder / "metrics.json", metrics)
    return metrics


def _untrained(task: Task) -> dict[str, scoring.Scores]:
    """The network as it was before: its pooled features, since a fresh head says nothing."""
    if task.config.data.startswith("embeddings:"):
        return {}
    with torch.random.fork_rng():
        _, network = open_source(task.config)
    network = copy.deepcopy(network).to(task.fabric.device)
    network.head = nn.Identity()
    network.dim = network.features
    began = "pretrained" if getattr(network, "loaded", None) else "untrained"
    return {f"{began} {task.config.model}": scoring.score_tests(task, network)}
