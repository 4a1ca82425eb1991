"""t-SNE of originals and synthetics (Fig. 14)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from iaa.analysis.synthetics import compact, draw
from iaa.errors import need
from iaa.method.augment import IAA
from iaa.retrieval.ranking import rank_within_class


@dataclass(frozen=True)
class Projection:
    """Positions in one map, so that originals and synthetics can be drawn next to each other."""

    rows: Int64[Tensor, " n"]
    """Which samples the originals are."""
    labels: Int64[Tensor, " n"]
    originals: Float[Tensor, "n 2"]
    synthetics: Float[Tensor, "n m 2"]
    perplexity: float


def project(
    z: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    augment: IAA,
    *,
    classes: int = 10,
    per_class: int = 30,
    copies: int = 3,
    seed: int = 0,
) -> Projection:
    """t-SNE of samples of random classes and of their synthetics, all at unit length as a loss sees them.

    ``augment`` is fitted to the classes of ``z``, numbered by ``synthetics.compact``.
    """
    manifold = need("sklearn.manifold", extra="report")
    rows = choose(labels, classes=classes, per_class=per_class, seed=seed)
    _, numbers = compact(labels)
    drawn = draw(z[rows], numbers[rows], augment, copies=copies, seed=seed)
    points = F.normalize(torch.cat([z[rows, None].float(), drawn], 1), dim=2)
    perplexity = min(30.0, (points.shape[0] * points.shape[1] - 1) / 3)
    flat = points.flatten(0, 1).double().numpy()  # in single precision equal points can break its first step
    t_sne = manifold.TSNE(perplexity=perplexity, init="random", random_state=seed)
    positions = torch.from_numpy(t_sne.fit_transform(flat)).float().unflatten(0, points.shape[:2])
    return Projection(rows, labels[rows], positions[:, 0], positions[:, 1:], perplexity)


def choose(labels: Int64[Tensor, " n"], *, classes: int, per_class: int, seed: int) -> Int64[Tensor, " rows"]:
    """Rows of some random classes of two samples or more, at most ``per_class`` of each, class by class."""
    kept, numbers, sizes = labels.unique(return_inverse=True, return_counts=True)
    generator = torch.Generator().manual_seed(seed)
    several = (sizes >= min(2, int(sizes.max()))).nonzero()[:, 0]
    chosen = several[torch.randperm(len(several), generator=generator)[:classes]].sort().values
    wanted = torch.zeros(len(kept), dtype=torch.bool).index_fill(0, chosen, True)
    shuffled = torch.randperm(len(labels), generator=generator)
    shuffled = shuffled[wanted[numbers[shuffled]]]
    ordered = shuffled[numbers[shuffled].argsort(stable=True)]
    return ordered[rank_within_class(numbers[ordered]) < per_class]
