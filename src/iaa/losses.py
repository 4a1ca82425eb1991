"""The paper's baseline losses, each with its miner, assembled from pytorch-metric-learning's parts.

Distances lie between unit vectors (Eq. 1). All losses are reduced as the paper writes them: summed over pairs
or triplets, divided by the number of anchors.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from pytorch_metric_learning import distances, losses, miners, reducers
from torch import Tensor, nn

from iaa.errors import unknown


class Baseline(NamedTuple):
    """A loss and the miner that goes with it: ``loss, miner = iaa.losses.triplet()``."""

    loss: nn.Module
    miner: nn.Module | None


class PerAnchor(reducers.BaseReducer):
    """The sum of all losses over the number of anchors: the paper's (1/n) sum over i."""

    def element_reduction(self, losses: Tensor, _: Any, embeddings: Tensor, __: Any) -> Tensor:
        """Of one loss per element; pairs and triplets likewise."""
        return losses.sum() / len(embeddings)

    pos_pair_reduction = neg_pair_reduction = triplet_reduction = element_reduction


def contrastive(*, pos_margin: float = 0.0, neg_margin: float = 1.0) -> Baseline:
    """Contrastive loss on Euclidean distances, all pairs (Eq. 2)."""
    return Baseline(losses.ContrastiveLoss(pos_margin, neg_margin, reducer=PerAnchor()), None)


def triplet(*, margin: float = 0.2) -> Baseline:
    """Triplet loss over all positives and the hardest negative of each anchor (Eq. 3)."""
    miner = miners.BatchEasyHardMiner(pos_strategy="all", neg_strategy="hard")
    return Baseline(losses.TripletMarginLoss(margin, reducer=PerAnchor()), miner)


def multi_similarity(
    *, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, epsilon: float = 0.1
) -> Baseline:
    """Multi-similarity loss (Eq. 4) with its miner of hard positives and negatives (Eq. 5-6)."""
    loss = losses.MultiSimilarityLoss(alpha, beta, base, reducer=PerAnchor())
    return Baseline(loss, miners.MultiSimilarityMiner(epsilon))


def triplet_distance(*, margin: float = 0.2, cutoff: float = 0.5, far: float = 1.4) -> Baseline:
    """Triplet loss (Eq. 3) on triplets drawn by distance-weighted sampling."""
    loss = losses.TripletMarginLoss(margin, reducer=PerAnchor())
    return Baseline(loss, miners.DistanceWeightedMiner(cutoff, far))


def margin(*, margin: float = 0.2, boundary: float = 1.2, cutoff: float = 0.5, far: float = 1.4) -> Baseline:
    """Margin loss, whose two distances are held against one boundary, with distance-weighted sampling."""
    loss = losses.MarginLoss(margin, beta=boundary, reducer=PerAnchor())
    return Baseline(loss, miners.DistanceWeightedMiner(cutoff, far))


def circle(*, m: float = 0.4, gamma: float = 80.0) -> Baseline:
    """Circle loss over all pairs."""
    return Baseline(losses.CircleLoss(m, gamma, reducer=PerAnchor()), None)


def norm_softmax(num_classes: int, dim: int, *, temperature: float = 0.05) -> Baseline:
    """Softmax over cosine similarities to one proxy per class."""
    return Baseline(losses.NormalizedSoftmaxLoss(num_classes, dim, temperature, reducer=PerAnchor()), None)


def proxy_nca(num_classes: int, dim: int, *, scale: float = 8.0) -> Baseline:
    """Neighbourhood components over squared distances to one proxy per class."""
    distance = distances.LpDistance(power=2)
    loss = losses.ProxyNCALoss(num_classes, dim, softmax_scale=scale, distance=distance, reducer=PerAnchor())
    return Baseline(loss, None)


def soft_triple(
    num_classes: int,
    dim: int,
    *,
    centers: float = 10,
    scale: float = 20.0,
    gamma: float = 0.1,
    margin: float = 0.01,
) -> Baseline:
    """Softmax over several centres per class, between which a sample chooses softly."""
    if centers != int(centers):
        raise ValueError(f"centers must be a whole number, got {centers}")
    loss = losses.SoftTripleLoss(num_classes, dim, int(centers), scale, gamma, margin, reducer=PerAnchor())
    return Baseline(loss, None)


PAIRS: dict[str, Callable[..., Baseline]] = {
    "contrastive": contrastive,
    "triplet": triplet,
    "multi_similarity": multi_similarity,
    "triplet_distance": triplet_distance,
    "margin": margin,
    "circle": circle,
}
PROXIES: dict[str, Callable[..., Baseline]] = {
    "norm_softmax": norm_softmax,
    "proxy_nca": proxy_nca,
    "soft_triple": soft_triple,
}


def build(name: str, *, num_classes: int, dim: int, **options: float) -> Baseline:
    """One of the losses by its name.

    >>> loss, miner = build("circle", num_classes=10, dim=64, gamma=40.0)
    """
    if name in PAIRS:
        return PAIRS[name](**options)
    if name in PROXIES:
        return PROXIES[name](num_classes, dim, **options)
    raise unknown("loss", name, [*PAIRS, *PROXIES])
