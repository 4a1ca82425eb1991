"""Retrieval scores on classes the network has not seen, during training and at its end."""

from typing import Any

from torch import Tensor, nn

from iaa.data import Dataset
from iaa.data_source import Batches
from iaa.embed import PRECISIONS, embed_batches
from iaa.models import Preprocessing
from iaa.provenance import with_columns
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.evaluation import evaluate
from iaa.runs import Run
from iaa.training import distributed
from iaa.training.setup import Task

TestScores = dict[str, dict[str, float]]
"""Of every test set: R@K, RP and MAP@R in percent."""


def embed(task: Task, network: nn.Module, batches: Batches) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings, labels and rows of this rank's batches."""
    moved = ((task.put(images), labels, rows) for images, labels, rows in batches)
    return embed_batches(
        network,
        moved,
        device=task.fabric.device,
        precision=PRECISIONS[task.config.precision],
        on_batch=task.on_images,
    )


def embeddings(
    task: Task,
    network: nn.Module,
    part: Dataset,
    *,
    batches: Batches | None = None,
    meta: dict[str, Any] | None = None,
) -> Embeddings:
    """Embeddings of a whole part, on every rank: each embeds its share."""
    rank, ranks = task.fabric.global_rank, task.fabric.world_size
    preprocessing = getattr(network, "preprocessing", task.preprocessing)  # raw pixels have none of their own
    z, _, rows = embed(task, network, batches or rank_batches(task, part, preprocessing))
    device = task.fabric.device
    z, rows = (distributed.collect(t.to(device)).cpu() for t in (z, rows * ranks + rank))
    order = rows.argsort()
    rows = rows[order]
    return with_columns(part.take(rows.numpy()), z[order], task.source.ids(part, rows), meta or {})


def rank_batches(
    task: Task, part: Dataset, preprocessing: Preprocessing | None, *, again: bool = False
) -> Batches:
    """This rank's rows of a part, as test-time images."""
    rows = slice(task.fabric.global_rank, None, task.fabric.world_size)
    return task.source.in_order(part, preprocessing, rows, again=again)


def scores(data: Embeddings, ks: tuple[int, ...], split: str = "test") -> dict[str, float]:
    """R@K, RP and MAP@R in percent, by the roles in the data; no K beyond the number of neighbours."""
    pairs = zip(data.split, data.role, strict=True)
    roles = [role for part, role in pairs if part == split and role != "query"]
    neighbors = len(roles) - ("both" in roles)
    values = evaluate(data, ks=tuple(k for k in ks if k <= max(neighbors, 1)), split=split).values()
    return {name: float(value.mean()) for name, value in values.items()}


def score_tests(
    task: Task, network: nn.Module, *, run: Run | None = None, meta: dict[str, Any] | None = None
) -> TestScores:
    """Scores of all test sets; their embeddings are saved to ``run``."""
    scored: TestScores = {}
    for name, part in task.source.tests.items():
        data = embeddings(task, network, part, meta=meta)
        if run is not None and task.fabric.is_global_zero:
            data.save(
                run / ("embeddings.safetensors" if name == "test" else f"embeddings-{name}.safetensors")
            )
        scored[name] = scores(data, part.ks)
    return scored
