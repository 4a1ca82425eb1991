"""The class atlas: what each class's Gaussian looks like, who lends to it, which samples are extreme."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor


@dataclass(frozen=True)
class Lender:
    """A neighbour class and its share in what is lent, in [0, 1]."""

    label: int
    name: str
    share: float


@dataclass(frozen=True)
class Sample:
    """A sample by its row, its id, and its distance to the mean of its class without it."""

    row: int
    id: str
    distance: float
    """In standard deviations of the class, root mean square over dimensions; about 1 is usual."""


@dataclass(frozen=True)
class ClassRow:
    """One class; a row of the atlas."""

    label: int
    name: str
    count: int
    total_variance: float
    """Sum of the class's own variances over dimensions (trace of its covariance)."""
    corrected_variance: float
    """The same after correction."""
    effective_rank: float | None
    """Directions it varies in: squared sum over sum of squares of the eigenvalues; None for one sample."""
    alpha: float
    """How much it borrows, in [0, 1] (Eq. 16)."""
    lenders: tuple[Lender, ...]
    """Those that lend most, largest share first; empty where it borrows nothing."""
    moved: float | None
    """Distance of own and corrected variances over the length of its own; None where that is 0."""
    extremes: tuple[Sample, ...]
    """Its samples farthest from the mean of the others, farthest first; empty for one sample."""


@dataclass(frozen=True)
class Suspect:
    """A sample that another class explains better than its own."""

    row: int
    id: str
    label: int
    name: str
    distance: float
    """To its own class without it, in standard deviations (root mean square over dimensions)."""
    other_label: int
    other_name: str
    other_distance: float
    evidence: float
    """By how much the other class explains it better: log-likelihood ratio per dimension, in nats."""


@dataclass(frozen=True)
class Atlas:
    """All classes, and the samples that are likely to carry a wrong label, most likely first."""

    classes: tuple[ClassRow, ...]
    suspects: tuple[Suspect, ...]
    samples: int
    dim: int
    options: dict[str, Any]
    """Of the correction, as given to ``iaa.correct``."""


@torch.no_grad()
def atlas(
    z: Float[Tensor, "N D"],
    labels: Integer[Tensor, "N"],
    *,
    ids: Sequence[str] | None = None,
    names: dict[int, str] | None = None,
    lenders_shown: int = 5,
    extremes_shown: int = 3,
    suspects_shown: int = 100,
    candidates: int = 5,
    **correction: Any,
) -> Atlas:
    """Of un-normalised embeddings; ``correction`` are the options of ``iaa.correct``."""
    raise NotImplementedError
