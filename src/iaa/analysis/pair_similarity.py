"""Similarities of positive and negative pairs: how far apart do they lie? (Fig. 12)"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from iaa.method.checks import check_whole
from iaa.retrieval.cosine import full_precision, points
from iaa.retrieval.tiles import Tile, each_tile


@dataclass(frozen=True)
class Similarity:
    """Histograms of the cosine similarities of all pairs, positives and negatives apart."""

    name: str
    edges: tuple[float, ...]
    """One more than there are bins, from -1 to 1."""
    positive: tuple[float, ...]
    """Share of the positive pairs in each bin; sums to 1."""
    negative: tuple[float, ...]
    positives: int
    """Number of pairs, each counted once."""
    negatives: int
    positive_mean: float
    positive_deviation: float
    negative_mean: float
    negative_deviation: float
    overlap: float
    """Area shared by the two histograms, from 0 (apart) to 1 (the same)."""
    d_prime: float
    """Distance of the two means in units of the root mean square of the two deviations."""


def similarity(
    z: Float[Tensor, "N D"],
    labels: Integer[Tensor, "N"],
    *,
    name: str = "",
    bins: int = 100,
    tick: Callable[[float], None] = lambda done: None,
) -> Similarity:
    """Go through all pairs once, tile by tile; no N x N matrix is held."""
    check_whole("bins", bins, least=2)
    mine, same = points(z)
    counts = torch.zeros(2, bins, dtype=torch.float64)  # all pairs; positives
    moments = torch.zeros(2, 3, dtype=torch.float64)
    lock = Lock()

    def look(tile: Tile) -> None:
        values = tile.similarity.clamp(-1, 1)
        rows, columns = (
            labels[at : at + length]
            for at, length in zip((tile.top, tile.left), tile.similarity.shape, strict=True)
        )
        equal = rows[:, None] == columns
        if not tile.mirrored:  # each pair once, none with itself
            once = torch.ones_like(equal).triu(1 + tile.top - tile.left)
            values, equal = values[once], equal[once]
        sums = [_summed(values, bins), _summed(values[equal], bins)]
        with lock:
            for kind, (histogram, moment) in enumerate(sums):
                counts[kind] += histogram
                moments[kind] += moment

    rows = torch.arange(len(z), device=z.device)
    with full_precision(z.device):
        each_tile(mine, same, rows, rows, look, tick)
    counts[0] -= counts[1]
    moments[0] -= moments[1]
    (negatives, *_), (positives, *_) = moments.long().tolist()
    if not positives or not negatives:
        missing = "positive" if not positives else "negative"
        raise ValueError(
            f"histograms need positive and negative pairs, got no {missing} pair in {len(z)} samples"
        )
    negative, positive = (counts / counts.sum(1, keepdim=True)).unbind()
    means = moments[:, 1] / moments[:, 0]
    variances = (moments[:, 2] / moments[:, 0] - means.square()).clamp(min=0)
    return Similarity(
        name=name,
        edges=tuple(torch.linspace(-1, 1, bins + 1, dtype=torch.float64).tolist()),
        positive=tuple(positive.tolist()),
        negative=tuple(negative.tolist()),
        positives=positives,
        negatives=negatives,
        positive_mean=float(means[1]),
        positive_deviation=float(variances[1].sqrt()),
        negative_mean=float(means[0]),
        negative_deviation=float(variances[0].sqrt()),
        overlap=float(torch.minimum(positive, negative).sum()),
        d_prime=float((means[1] - means[0]) / variances.mean().sqrt().clamp(min=1e-12)),
    )


def _summed(values: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """Histogram; and number, sum and sum of squares."""
    histogram = torch.histc(values.float(), bins, -1, 1).double().cpu()
    wide = values.double()
    number = torch.tensor(float(values.numel()), dtype=torch.float64)
    return histogram, torch.stack([number, wide.sum().cpu(), wide.square().sum().cpu()])
