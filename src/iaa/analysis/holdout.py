"""Does borrowing covariance pay? Estimates from one half of each class, compared with its other half."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from iaa.method.correction import correct, global_variance
from iaa.method.gaussians import estimate
from iaa.retrieval.ranking import rank_within_class

FEWEST = 4
"""Samples a class needs so that each of its halves has a variance."""


@dataclass(frozen=True)
class HeldOut:
    """How far variances estimated from half of each class are from those of the other half.

    Errors are squared distances between variances, summed over classes and divided by the squared length of
    the held-out variances: 0 is perfect. The noise of the held-out half is the same in all of them.
    """

    classes: int
    """Classes with four samples or more."""
    samples: float
    """Median number of samples that a class's variance was estimated from."""
    own: float
    """Error of the class's own variance."""
    neighbors: float
    """Error of what its neighbours lend, alone (Eq. 12)."""
    corrected: float
    """Error of the corrected variance (Eq. 15)."""
    pooled: float
    """Error when corrected as much, but towards the global variance: the effect without neighbours."""
    overall: float
    """Error of the global variance (Eq. 14)."""
    closer: float
    """Share of the classes whose corrected variance is closer to the held-out one than their own: 0 to 1."""


@torch.no_grad()
def held_out(
    z: Float[Tensor, "N D"],
    labels: Integer[Tensor, "N"],
    *,
    num_classes: int,
    splits: int = 5,
    seed: int = 0,
    **correction: Any,
) -> HeldOut | None:
    """Split every class in two at random and compare; None with fewer than three classes of four samples.

    Averages over ``splits`` such halvings. ``correction`` are the options of ``iaa.correct``; whatever its
    ``few``, all classes borrow here, since the question is whether they should.
    """
    labels = labels.long()
    count = torch.bincount(labels, minlength=num_classes)
    scored = (count >= FEWEST).nonzero().flatten()
    if len(scored) < 3:
        return None
    generator = torch.Generator().manual_seed(seed)
    options = {**correction, "few": torch.inf}
    alone = {**options, "falloff": 0.0, "global_share": 0.0}  # alpha = 1: nothing of the class's own
    rounds = []
    for _ in range(splits):
        kept = _first_half(labels, count, generator)
        stats = estimate(z[kept], labels[kept], num_classes=num_classes)
        rest = estimate(z[~kept], labels[~kept], num_classes=num_classes).take(scored)
        size = rest.count[:, None].to(rest.variance.dtype)
        truth = rest.variance * size / (size - 1)  # unbiased: what every estimate aims at
        estimates = (
            stats.variance[scored],
            correct(stats, classes=scored, **alone),
            correct(stats, classes=scored, **options),
            correct(stats, classes=scored, **{**options, "global_share": 1.0}),
            global_variance(stats).expand(len(scored), -1),
        )
        errors = torch.stack([(variance - truth).double().square().sum(1) for variance in estimates])
        closer = (errors[2] < errors[0]).double().mean()
        rounds.append(
            torch.cat([errors.sum(1) / truth.double().square().sum().clamp(min=1e-30), closer[None]])
        )
    own, neighbors, corrected, pooled, overall, share = torch.stack(rounds).mean(0).tolist()
    samples = float((count[scored] + 1).div(2, rounding_mode="floor").double().median())
    return HeldOut(len(scored), samples, own, neighbors, corrected, pooled, overall, share)


def _first_half(
    labels: Int[Tensor, "N"], count: Int[Tensor, "C"], generator: torch.Generator
) -> Bool[Tensor, "N"]:
    """Every other sample of each class in random order, the larger half; all of a class too small."""
    shuffled = torch.randperm(len(labels), generator=generator).to(labels.device)
    rank = torch.empty_like(shuffled)
    rank[shuffled] = rank_within_class(labels[shuffled])
    return (rank % 2 == 0) | (count[labels] < FEWEST)
