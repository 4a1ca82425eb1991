"""How far a within-class covariance is to be shrunk: the choice that ranks held-out classes best."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from iaa.method.gaussians import in_range, unaffected_by_autocast
from iaa.method.within_class import WithinClass

GRID = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
DEFAULT = 0.8
"""Good for features of networks in general; taken unless held-out classes clearly prefer another."""
CLEARLY = 2.0
"""Standard errors by which a choice must be better than the default."""
FOLDS = 3


def shrink_covariance(covariance: Float[Tensor, "D D"], shrink: float) -> Float[Tensor, "D D"]:
    """``(1 - shrink) * covariance + shrink * mean(diagonal) * identity``."""
    identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    return (1 - shrink) * covariance + shrink * covariance.diagonal().mean() * identity


def eigen(covariance: Float[Tensor, "D D"]) -> tuple[Float[Tensor, " D"], Float[Tensor, "D D"]]:
    """Eigenvalues, smallest first, and eigenvectors; in float64 with a tiny ridge where LAPACK fails.

    Covariances of rank far below their size can keep it from converging.
    """
    try:
        return tuple(torch.linalg.eigh(covariance))
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        wide = covariance.double()
        ridge = 1e-10 * wide.diagonal().mean()
        wide = (wide + wide.T) / 2 + ridge * torch.eye(len(wide), dtype=wide.dtype, device=wide.device)
        values, vectors = torch.linalg.eigh(wide)
        return (values - ridge).to(covariance), vectors.to(covariance)


def choose_shrink(stats: WithinClass) -> float:
    """The shrinkage that ranks classes best which gave no statistics (MAP@R), in ``FOLDS`` turns.

    Analytic rules (Ledoit-Wolf, OAS) ask how well a covariance is estimated and shrink far less than what is
    best for classes never seen; see docs/decisions/method.md.
    """
    classes = stats.kept_classes()
    classes = classes[torch.isin(classes, stats.labels[stats.count > 1])]
    if len(classes) < 2 * FOLDS:
        return DEFAULT
    turns = []
    for fold in range(FOLDS):
        held_out = classes[fold::FOLDS]
        known = stats.without(held_out)
        if float(known.within.diagonal().sum()) <= 0:
            return DEFAULT
        within, squared = in_range(known.within)  # of any scale: the choice does not depend on it
        eigenvalues, vectors = (part.float() for part in eigen(within.float()))
        mine = torch.isin(stats.row_labels, held_out)
        centred, labels = (stats.rows[mine] - known.center) / squared**0.5, stats.row_labels[mine]
        rotated = centred.float() @ vectors
        scales = [  # shrinking leaves the eigenvectors as they are
            ((1 - shrink) * eigenvalues.clamp(min=0) + shrink * eigenvalues.mean()).rsqrt() for shrink in GRID
        ]
        turns.append(torch.stack([average_precision(rotated * scale, labels) for scale in scales]))
    gain = torch.cat(turns, 1)
    gain = gain - gain[GRID.index(DEFAULT)]
    mean, error = gain.mean(1), gain.std(1) / gain.shape[1] ** 0.5
    clear = mean > CLEARLY * error
    return GRID[int(mean.where(clear, 0).argmax())] if bool(clear.any()) else DEFAULT


@unaffected_by_autocast
def average_precision(
    z: Float[Tensor, "N D"], labels: Int[Tensor, "N"], *, block: int = 512
) -> Float[Tensor, "Q"]:
    """MAP@R of every query that has a positive, by cosine, leave-one-out.

    For a few thousand samples; ``iaa.score`` is for any number.
    """
    z = F.normalize(z.float(), dim=1)
    _, labels, count = labels.unique(return_inverse=True, return_counts=True)
    positives = count[labels] - 1
    rank = torch.arange(1, int(positives.max()) + 1, device=z.device)
    precisions = []
    for rows in (positives > 0).nonzero().flatten().split(block):
        similarity = z[rows] @ z.T
        similarity[torch.arange(len(rows), device=z.device), rows] = -torch.inf
        nearest = similarity.topk(len(rank), dim=1).indices
        hit = (labels[nearest] == labels[rows, None]) & (rank <= positives[rows, None])
        precisions.append((hit.cumsum(1) / rank * hit).sum(1) / positives[rows])
    return torch.cat(precisions)
