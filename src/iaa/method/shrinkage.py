"""How far a within-class covariance is to be shrunk: the choice that ranks held-out classes best."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from iaa.method.gaussians import unaffected_by_autocast
from iaa.method.within_class import WithinClass

GRID = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
FOLDS = 3
DEFAULT = 0.8
"""Where too few classes are known to hold any out."""


def shrink_covariance(covariance: Float[Tensor, "D D"], shrink: float) -> Float[Tensor, "D D"]:
    """``(1 - shrink) * covariance + shrink * mean(diagonal) * identity``."""
    identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    return (1 - shrink) * covariance + shrink * covariance.diagonal().mean() * identity


def choose_shrink(stats: WithinClass) -> float:
    """The shrinkage with the best MAP@R on classes that gave no statistics, in ``FOLDS`` turns.

    Analytic rules (Ledoit-Wolf, OAS) ask how well this sample's covariance is estimated and shrink far less
    than what is best for classes never seen; see docs/decisions.md.
    """
    classes = stats.kept_classes()
    classes = classes[torch.isin(classes, stats.labels[stats.count > 1])]
    if len(classes) < 2 * FOLDS:
        return DEFAULT
    scores = torch.zeros(len(GRID), dtype=torch.float64)
    for fold in range(FOLDS):
        held_out = classes[fold::FOLDS]
        known = stats.without(held_out)
        if float(known.within.diagonal().sum()) <= 0:
            return DEFAULT
        eigenvalues, vectors = torch.linalg.eigh(known.within)
        mine = torch.isin(stats.row_labels, held_out)
        rotated, labels = (stats.rows[mine] - known.center) @ vectors, stats.row_labels[mine]
        for position, shrink in enumerate(GRID):  # shrinking leaves the eigenvectors as they are
            scale = ((1 - shrink) * eigenvalues.clamp(min=0) + shrink * eigenvalues.mean()).rsqrt()
            scores[position] += mean_average_precision(rotated * scale, labels)
    return GRID[int(scores.argmax())]


@unaffected_by_autocast
def mean_average_precision(z: Float[Tensor, "N D"], labels: Int[Tensor, "N"], *, block: int = 512) -> float:
    """MAP@R by cosine, leave-one-out, for a few thousand samples; ``iaa.score`` is for any number."""
    z = F.normalize(z.float(), dim=1)
    _, labels, count = labels.unique(return_inverse=True, return_counts=True)
    positives = count[labels] - 1
    total, rank = 0.0, torch.arange(1, int(positives.max()) + 1, device=z.device)
    for rows in torch.arange(len(z), device=z.device).split(block):
        similarity = z[rows] @ z.T
        similarity[torch.arange(len(rows), device=z.device), rows] = -torch.inf
        nearest = similarity.topk(len(rank), dim=1).indices
        hit = (labels[nearest] == labels[rows, None]) & (rank <= positives[rows, None])
        precision = hit.cumsum(1) / rank
        total += float(((precision * hit).sum(1) / positives[rows].clamp(min=1)).sum())
    return total / max(1, int((positives > 0).sum()))
