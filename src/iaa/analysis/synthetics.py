"""What the synthetics of some samples are like: which real images are nearest to them."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from iaa.method.augment import IAA
from iaa.retrieval.knn import knn


@dataclass(frozen=True)
class Surroundings:
    """The real samples nearest to each synthetic, by cosine; the one it was drawn around is left out."""

    rows: Int64[Tensor, " s"]
    """The samples that synthetics were drawn around."""
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
    """The labels that occur, and 0 … C-1 in their place: what class statistics are counted by."""
    kept, numbers = labels.unique(return_inverse=True)
    return kept, numbers


@torch.no_grad()
def draw(
    z: Float[Tensor, "n d"], numbers: Int64[Tensor, " n"], augment: IAA, *, copies: int, seed: int
) -> Float[Tensor, "n m d"]:
    """``copies`` synthetics around each sample (Eq. 17), whatever number the run itself has drawn."""
    before, augment.copies = augment.copies, copies
    try:
        generator = torch.Generator(device=z.device).manual_seed(seed)
        drawn: Tensor = augment(z.float(), numbers, generator=generator)[0]
    finally:
        augment.copies = before
    return drawn.view(copies, *z.shape).transpose(0, 1)


@torch.no_grad()
def surroundings(
    z: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    rows: Int64[Tensor, " s"],
    augment: IAA,
    *,
    copies: int = 3,
    nearest: int = 3,
    seed: int = 0,
) -> Surroundings:
    """Draw synthetics around ``rows`` and find the real samples nearest to them.

    ``augment`` knows the statistics of the classes of ``z``, numbered by ``compact``.
    """
    _, numbers = compact(labels)
    drawn = draw(z[rows], numbers[rows], augment, copies=copies, seed=seed)
    around = torch.cat([z[rows, None].float(), drawn], 1)  # the sample itself asks as well
    nearest = min(nearest, len(z) - 1)
    found = knn(around.flatten(0, 1), z.float(), k=nearest + 1)
    index, value = (part.unflatten(0, around.shape[:2]) for part in (found.index, found.value))
    index, value = without(index, value, rows[:, None, None])
    right = labels[index] == labels[rows][:, None, None]
    own = torch.cosine_similarity(z[rows, None].float(), drawn, dim=2)
    return Surroundings(rows, drawn, index[:, 1:], value[:, 1:], right[:, 1:], own, index[:, 0], right[:, 0])


def without(index: Tensor, value: Tensor, excluded: Tensor) -> tuple[Tensor, Tensor]:
    """Ranked lists less one entry: ``excluded`` where it occurs, else the last; order is kept."""
    hit = index == excluded
    hit[..., -1] |= ~hit.any(-1)
    order = hit.to(torch.uint8).argsort(dim=-1, stable=True)[..., :-1]
    return index.gather(-1, order), value.gather(-1, order)
