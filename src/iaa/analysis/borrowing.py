"""Does borrowing covariance pay? Estimated from one half of each class, held against its other half."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor


@dataclass(frozen=True)
class HeldOut:
    """How far variances estimated from half of each class are from those of the other half.

    Errors are squared distances between variances, summed over classes and divided by the squared length of
    the held-out variances: 0 is perfect. The noise of the held-out half is in all four alike.
    """

    classes: int
    """With four samples or more."""
    samples: float
    """Median number of samples that a class's variance was estimated from."""
    own: float
    """Error of the class's own variance."""
    neighbors: float
    """Of what its neighbours lend alone (Eq. 12)."""
    corrected: float
    """Of the corrected variance (Eq. 15)."""
    overall: float
    """Of the global variance (Eq. 14)."""
    closer: float
    """Share of the classes whose corrected variance is nearer to the held-out one than their own; in [0, 1]."""


@torch.no_grad()
def held_out(
    z: Float[Tensor, "N D"],
    labels: Integer[Tensor, "N"],
    *,
    num_classes: int,
    seed: int = 0,
    **correction: Any,
) -> HeldOut | None:
    """Split every class in two at random and compare; None with fewer than three classes of four samples.

    ``correction`` are the options of ``iaa.correct``; ``few`` is infinite unless given, so that all borrow.
    """
    raise NotImplementedError
