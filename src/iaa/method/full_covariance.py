"""The samples behind full covariances: kept as they came, combined only when noise is drawn."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from iaa.method.correction import correction_weight, lenders
from iaa.method.gaussians import ClassStats
from iaa.method.synthesis import full_noise

Mixture = tuple[Int[Tensor, "P J"], Float[Tensor, "P J"], Float[Tensor, "P"]]
FORGOTTEN = 0.01
"""A sample whose weight has faded below this is dropped."""


@dataclass(frozen=True)
class Samples:
    """Embeddings in the order of their arrival, with their classes and weights."""

    rows: Float[Tensor, "N D"]
    labels: Int[Tensor, "N"]
    weight: Float[Tensor, "N"]

    @classmethod
    def of(cls, z: Float[Tensor, "N D"], labels: Int[Tensor, "N"]) -> "Samples":
        """Samples of weight 1."""
        return cls(z, labels, z.new_ones(len(z)))

    def add(self, other: "Samples", *, decay: float = 1.0) -> "Samples":
        """Both; what was there of the classes that come fades by ``decay`` first."""
        kept = self
        if decay < 1:
            weight = self.weight * torch.where(torch.isin(self.labels, other.labels), decay, 1.0)
            stays = weight >= FORGOTTEN
            kept = Samples(self.rows[stays], self.labels[stays], weight[stays])
        pairs = zip(
            (kept.rows, kept.labels, kept.weight), (other.rows, other.labels, other.weight), strict=True
        )
        return Samples(*(torch.cat(pair) for pair in pairs))

    def global_factor(self, stats: ClassStats) -> Float[Tensor, "D D"]:
        """A square root of the global full covariance (Eq. 14): F with F^T F = Sigma."""
        centered = (self.rows - stats.mean[self.labels]) * self.weight.sqrt()[:, None]
        covariance = centered.T @ centered / self.weight.sum()  # Eq. 14
        values, vectors = torch.linalg.eigh(covariance.double())
        factor: Tensor = (vectors * values.clamp(min=0).sqrt()).T
        return factor.to(self.rows.dtype)

    def noise(
        self,
        stats: ClassStats,
        members: Int[Tensor, "P J"],
        parts: Float[Tensor, "P J"],
        which: Int[Tensor, "B"],
        *,
        copies: int,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "M B D"]:
        """Draws whose covariance is the sum of those of ``members[which]``, each times its part."""
        involved = members[parts > 0].unique()
        position = self.labels.new_full((len(stats.count),), -1)
        position[involved] = torch.arange(len(involved), device=involved.device)
        amount = parts.new_zeros((len(parts), len(involved)))
        if len(involved) > 0:
            amount.scatter_add_(1, position[members].clamp(min=0), parts)
        used = (position[self.labels] >= 0).nonzero().flatten()
        labels = self.labels[used]
        share = self.weight[used] / stats.count[labels]
        scale = (amount[:, position[labels]] * share).sqrt()
        rows = self.rows[used] - stats.mean[labels]
        return full_noise(rows, scale, which, copies=copies, generator=generator)


def mixture(
    stats: ClassStats,
    classes: Int[Tensor, "P"],
    *,
    correction: bool,
    global_share: float,
    falloff: float,
    few: float,
    **kernel: Any,
) -> Mixture:
    """What corrected covariances consist of: member classes, the part of each, that of the global one."""
    count = stats.count[classes].to(stats.mean.dtype)
    alpha = correction_weight(count, falloff=falloff, few=few if correction else 0)
    borrows = (alpha > 0).nonzero().flatten()
    if len(borrows) == 0:
        return classes[:, None], torch.ones_like(alpha)[:, None], alpha
    lending, lent = lenders(stats, classes[borrows], **kernel)
    near = classes.new_zeros((len(classes), lending.shape[1])).index_copy_(0, borrows, lending)
    shares = alpha.new_zeros(near.shape).index_copy_(0, borrows, lent)
    alone = (shares.sum(1) == 0).to(alpha.dtype)  # nobody lends: the global covariance stands in
    overall = alpha * (global_share + (1 - global_share) * alone)
    parts = torch.cat([(1 - alpha)[:, None], (alpha * (1 - global_share))[:, None] * shares], dim=1)  # Eq. 15
    return torch.cat([classes[:, None], near], dim=1), parts, overall
