"""Retrieval on classes the network has not seen: while training, and in the end."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from iaa.data import Dataset
from iaa.embed import embed_batches
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.evaluation import evaluate
from iaa.training import distributed
from iaa.training.data_source import Batches
from iaa.training.setup import Task

AUTOCAST = {"32": None, "bf16": torch.bfloat16, "16": torch.float16}
Scores = dict[str, dict[str, float]]
"""Of every test part: R@K, RP and MAP@R in percent."""


def embed(
    task: Task,
    network: nn.Module,
    batches: Batches,
    on_batch: Callable[[int], None] = lambda count: None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings, labels and rows of this rank's batches."""
    placed = ((task.put(images), labels, rows) for images, labels, rows in batches)
    precision = AUTOCAST[task.config.precision]
    return embed_batches(network, placed, device=task.fabric.device, precision=precision, on_batch=on_batch)


def embeddings(
    task: Task, network: nn.Module, part: Dataset, *, batches: Batches | None = None
) -> Embeddings:
    """Embeddings of a whole part, on every rank: each embeds its share."""
    rank, ranks = task.fabric.global_rank, task.fabric.world_size
    z, labels, rows = embed(task, network, batches or share(task, part))
    device = task.fabric.device
    z, labels, rows = (distributed.collect(t.to(device)).cpu() for t in (z, labels, rows * ranks + rank))
    order = rows.argsort()
    z, labels, rows = z[order], labels[order], rows[order]
    at = rows.numpy()
    names = {label: part.class_names[label] for label in labels.unique().tolist()}
    ids = task.source.ids(part, rows)
    sequence = [] if part.sequence is None else part.sequence[at].tolist()
    return Embeddings(
        z, labels, ids, names, part.split[at].tolist(), part.role[at].tolist(), sequence=sequence
    )


def share(task: Task, part: Dataset, *, again: bool = False) -> Batches:
    """This rank's rows of a part, as test-time images."""
    return task.source.in_order(
        part, slice(task.fabric.global_rank, None, task.fabric.world_size), again=again
    )


def scores(data: Embeddings, ks: tuple[int, ...], split: str = "test") -> dict[str, float]:
    """R@K, RP and MAP@R in percent, by the roles in the data; no K beyond the neighbours there are."""
    pairs = zip(data.split, data.role, strict=True)
    found = [role for one, role in pairs if one == split and role != "query"]
    neighbors = len(found) - ("both" in found)
    values = evaluate(data, ks=tuple(k for k in ks if k <= max(neighbors, 1)), split=split).values()
    return {name: float(value.mean()) for name, value in values.items()}


def score_tests(
    task: Task, network: nn.Module, *, keep: Path | None = None, meta: dict[str, Any] | None = None
) -> Scores:
    """Scores of all test parts; their embeddings are kept in a run directory."""
    found = {}
    for name, part in task.source.tests.items():
        data = embeddings(task, network, part)
        if keep is not None and task.fabric.is_global_zero:
            file = "embeddings.safetensors" if name == "test" else f"embeddings-{name}.safetensors"
            replace(data, meta=meta or {}).save(keep / file)
        found[name] = scores(data, part.ks)
    return found
