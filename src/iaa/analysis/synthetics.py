"""The real samples nearest to synthetics."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from iaa.method.augment import IAA
from iaa.retrieval.knn import knn
from iaa.retrieval.ranking import drop_self


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
    own_similarity: Float[Tensor, "s m"]
    """Cosine of a synthetic and the sample it was drawn around."""
    own_nearest: Int64[Tensor, "s k"]
    """The real samples nearest to the sample itself."""
    own_right: Bool[Tensor, "s k"]

    def agreement(self) -> tuple[float, float]:
        """Share of synthetics, and of the samples themselves, whose nearest real sample is of their class."""
        return float(self.right[:, :, 0].float().mean()), float(self.own_right[:, 0].float().mean())


def compact(labels: Int64[Tensor, " n"]) -> tuple[Int64[Tensor, " c"], Int64[Tensor, " n"]]:
    """The labels that occur, and every row's number 0 … C-1 among them, as class statistics need it."""
    kept, numbers = labels.unique(return_inverse=True)
    return kept, numbers


@torch.no_grad()
def draw(
    z: Float[Tensor, "n d"], numbers: Int64[Tensor, " n"], augment: IAA, *, copies: int, seed: int
) -> Float[Tensor, "n m d"]:
    """``copies`` synthetics around each sample (Eq. 17), whatever ``augment.copies`` is."""
    before, augment.copies = augment.copies, copies
    try:
        generator = torch.Generator(device=z.device).manual_seed(seed)
        drawn: Tensor = augment(z.float(), numbers, generator=generator)[0]
    finally:
        augment.copies = before
    return drawn.view(copies, *z.shape).transpose(0, 1)


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

    ``augment`` is fitted to the classes of ``z``, numbered by ``compact``.
    """
    _, numbers = compact(labels)
    drawn = draw(z[rows], numbers[rows], augment, copies=copies, seed=seed)
    around = torch.cat([z[rows, None].float(), drawn], 1)  # the sample itself is a query as well
    nearest = min(nearest, len(z) - 1)
    near = knn(around.flatten(0, 1), z.float(), k=nearest + 1)
    index, value = (part.unflatten(0, around.shape[:2]) for part in (near.index, near.value))
    index, value = drop_self(index, value, rows[:, None, None])
    right = labels[index] == labels[rows][:, None, None]
    own = torch.cosine_similarity(z[rows, None].float(), drawn, dim=2)
    return SyntheticNeighbors(
        rows, drawn, index[:, 1:], value[:, 1:], right[:, 1:], own, index[:, 0], right[:, 0]
    )
