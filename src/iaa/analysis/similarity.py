"""Similarities of positive and negative pairs: how far apart do they lie? (Fig. 12)"""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float, Integer
from torch import Tensor


@dataclass(frozen=True)
class Similarity:
    """Histograms of the cosine similarities of all pairs, positives and negatives apart."""

    name: str
    edges: tuple[float, ...]
    """One more than there are bins, from -1 to 1 unless all pairs lie in less."""
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
    raise NotImplementedError
