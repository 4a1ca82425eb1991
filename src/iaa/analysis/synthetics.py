"""Synthetics drawn around samples: the real samples nearest to them, and t-SNE of both (Fig. 14)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from iaa.errors import need
from iaa.method.augment import IAA
from iaa.retrieval.knn import knn
from iaa.retrieval.ranking import drop_self, rank_within_class


@dataclass(frozen=True)
class SyntheticNeighbors:
    """The real samples nearest to each synthetic, by cosine, without the one it was drawn around."""

    rows: Int64[Tensor, " s"]
    """The samples around which synthetics were drawn."""
    z: Float[Tensor, "s m d"]
    """Their synthetics."""
    nearest: Int64[Tensor, "s m k"]
    similarity: Float[Tensor, "s m k"]
    right: Bool[Tensor, "s m k"]
    """Whether the real sample is of the synthetic's own class."""
    own_right: Bool[Tensor, "s k"]
    """The same of the real samples nearest to the sample itself."""

    def agreement(self) -> tuple[float, float]:
        """Share of synthetics, and of the samples themselves, whose nearest real sample is of their class."""
        return float(self.right[:, :, 0].float().mean()), float(self.own_right[:, 0].float().mean())


@torch.no_grad()
def draw(
    z: Float[Tensor, "n d"], numbers: Int64[Tensor, " n"], augment: IAA, *, copies: int, seed: int
) -> Float[Tensor, "n m d"]:
    """``copies`` synthetics around each sample (Eq. 17), whatever ``augment.copies`` is."""
    before, augment.copies = augment.copies, copies
    try:
        generator = torch.Generator(device=z.device).manual_seed(seed)
        synthetics: Tensor = augment(z.float(), numbers, generator=generator)[0]
    finally:
        augment.copies = before
    return synthetics.view(copies, *z.shape).transpose(0, 1)


@torch.no_grad()
def synthetic_neighbors(
    z: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    rows: Int64[Tensor, " s"],
    augment: IAA,
    *,
    copies: int = 3,
    nearest: int = 3,
    seed: int = 0,
) -> SyntheticNeighbors:
    """Draw synthetics around ``rows`` and find the real samples nearest to them.

    ``augment`` is fitted to the classes of ``z``, numbered in the order of their labels.
    """
    numbers = labels.unique(return_inverse=True)[1]
    synthetics = draw(z[rows], numbers[rows], augment, copies=copies, seed=seed)
    around = torch.cat([z[rows, None].float(), synthetics], 1)  # the sample itself is a query as well
    nearest = min(nearest, len(z) - 1)
    near = knn(around.flatten(0, 1), z.float(), k=nearest + 1)
    index, value = (part.unflatten(0, around.shape[:2]) for part in (near.index, near.value))
    index, value = drop_self(index, value, rows[:, None, None])
    right = labels[index] == labels[rows][:, None, None]
    return SyntheticNeighbors(rows, synthetics, index[:, 1:], value[:, 1:], right[:, 1:], right[:, 0])


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

    ``augment`` is fitted to the classes of ``z``, numbered in the order of their labels.
    """
    manifold = need("sklearn.manifold", extra="report")
    rows = choose(labels, classes=classes, per_class=per_class, seed=seed)
    numbers = labels.unique(return_inverse=True)[1]
    synthetics = draw(z[rows], numbers[rows], augment, copies=copies, seed=seed)
    points = F.normalize(torch.cat([z[rows, None].float(), synthetics], 1), dim=2)
    perplexity = min(30.0, (points.shape[0] * points.shape[1] - 1) / 3)
    flat = points.flatten(0, 1).double().numpy()  # in single precision equal points can break its first step
    t_sne = manifold.TSNE(perplexity=perplexity, init="random", random_state=seed)
    positions = torch.from_numpy(t_sne.fit_transform(flat)).float().unflatten(0, points.shape[:2])
    return Projection(rows, labels[rows], positions[:, 0], positions[:, 1:], perplexity)


def choose(labels: Int64[Tensor, " n"], *, classes: int, per_class: int, seed: int) -> Int64[Tensor, " rows"]:
    """Rows of some random classes of two samples or more, at most ``per_class`` of each, class by class."""
    _, numbers, sizes = labels.unique(return_inverse=True, return_counts=True)
    generator = torch.Generator().manual_seed(seed)
    several = (sizes >= min(2, int(sizes.max()))).nonzero()[:, 0]
    chosen = several[torch.randperm(len(several), generator=generator)[:classes]]
    wanted = torch.zeros(len(sizes), dtype=torch.bool).index_fill(0, chosen, True)
    shuffled = torch.randperm(len(labels), generator=generator)
    shuffled = shuffled[wanted[numbers[shuffled]]]
    ordered = shuffled[numbers[shuffled].argsort(stable=True)]
    return ordered[rank_within_class(numbers[ordered]) < per_class]
