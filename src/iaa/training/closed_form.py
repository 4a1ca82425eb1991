"""Heads that need no gradient: whitening by the class covariances, computed from one pass over the data."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from iaa.method.gaussians import estimate
from iaa.method.rank_merge import combine_stats
from iaa.method.whitening import Whitening
from iaa.models import Embedder
from iaa.models.heads import PowerLinear
from iaa.training import distributed, scoring
from iaa.training.setup import Task
from iaa.training.weight_average import WeightAverage


def fit_head(task: Task) -> None:
    """Compute the head of the network, or what a trained head starts from; most heads need neither."""
    head = _head(task.network)
    if not isinstance(head, Whitening | PowerLinear):
        return
    z, labels = _features(task)
    width = len(head.weight)
    whitening = Whitening(dim=width if width < z.shape[1] else None).update(z, labels)
    if distributed.active():
        whitening.sync()
    whitening.solve()
    if isinstance(head, PowerLinear):
        lengths = distributed.collect(whitening(z).norm(dim=1))  # all ranks start with the same head
        length = lengths.mean()  # learning rates suit embeddings of about unit length
        head.start_from(whitening.to(head.weight.device), scale=1 / float(length))
        _start_proxies(
            task.criterion, head(z.to(head.weight.device)), labels, task.criterion.augment.num_classes
        )
    else:
        head.load_state_dict(whitening.state_dict())
    if task.average is not None:  # it began with the head as it was
        task.average = WeightAverage(task.network, decay=task.average.decay)


@torch.no_grad()
def _start_proxies(criterion: nn.Module, z: Tensor, labels: Tensor, num_classes: int) -> None:
    """Put the proxy of each class at its mean: random ones would first undo what training starts from.

    Losses with several proxies per class keep theirs.
    """
    for name, weight in criterion.named_parameters():
        kind = name.rpartition(".")[2]
        if kind not in ("proxies", "W") or weight.numel() != num_classes * z.shape[1]:
            continue
        proxies = weight if kind == "proxies" else weight.T  # as pytorch-metric-learning stores them
        stats = estimate(z, labels, num_classes=num_classes)
        stats = combine_stats(stats) if distributed.active() else stats
        proxies.copy_(nn.functional.normalize(stats.mean) * proxies.norm(dim=1, keepdim=True))


def _features(task: Task) -> tuple[Tensor, Tensor]:
    """Features of the training set before the head, as test-time images; on each rank its share."""
    with _without_head(task.network):
        z, labels, _ = scoring.embed(task, task.network, task.statistics_batches)
    return z, labels


def _head(network: Any) -> nn.Module:
    head: nn.Module = network.head if isinstance(network, Embedder) else network.head[-1]
    return head


@contextmanager
def _without_head(network: Any) -> Iterator[None]:
    head, dim = network.head, network.dim
    network.head, network.dim = nn.Identity(), network.features
    try:
        yield
    finally:
        network.head, network.dim = head, dim
