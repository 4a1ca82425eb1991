"""Heads from features to embeddings: trained, computed in closed form, or none."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from iaa.errors import unknown
from iaa.method.whitening import Whitening, signed_power

HeadKind = Literal["linear", "power", "whitening", "none"]
"""``power`` is a linear head behind the signed power of a whitening, which it can start from."""


class PowerLinear(nn.Linear):
    """A linear layer on the signed power of its input; an exponent of 1 is a plain linear layer."""

    exponent: Tensor

    def __init__(self, features: int, dim: int) -> None:
        super().__init__(features, dim)
        self.register_buffer("exponent", torch.ones(()))

    def forward(self, z: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        """Embeddings, not normalised."""
        return F.linear(signed_power(z, self.exponent), self.weight, self.bias)

    @torch.no_grad()
    def start_from(self, whitening: Whitening) -> None:
        """Take over a whitening; its rows fill the first dimensions, and any further ones start small."""
        rows = len(whitening.weight)
        self.exponent.copy_(whitening.exponent)
        self.weight.mul_(whitening.weight.norm(dim=1).mean() / self.weight.norm(dim=1).mean() * 0.1)
        self.weight[:rows] = whitening.weight[: len(self.weight)]
        self.bias.copy_(-self.weight @ whitening.center)


def make_head(kind: HeadKind, features: int, dim: int | None) -> nn.Module:
    """A head for ``features``; a whitening is still to be fitted, and has all features if ``dim`` is None."""
    if dim is not None and dim < 1:
        raise ValueError(f"dim must be 1 or more, or None for the bare features; got {dim}")
    if kind == "none" or (dim is None and kind == "linear"):
        return nn.Identity()
    if kind == "whitening":
        kept = features if dim is None else min(dim, features)
        whitening = Whitening(dim=None if kept == features else kept)
        whitening.center, whitening.weight = torch.zeros(features), torch.zeros(kept, features)
        return whitening
    if kind not in ("linear", "power"):
        raise unknown("head", kind, ("linear", "power", "whitening", "none"))
    width = features if dim is None else dim
    return nn.Linear(features, width) if kind == "linear" else PowerLinear(features, width)


def head_dim(head: nn.Module, features: int) -> int:
    """Dimensions of the embeddings of a head."""
    if isinstance(head, Whitening):
        return len(head.weight)
    return head.out_features if isinstance(head, nn.Linear) else features


def head_name(head: nn.Module) -> str:
    """What a head is called in one-line descriptions."""
    if isinstance(head, Whitening):
        return "whitening"
    return "linear head" if isinstance(head, nn.Linear) else "no head"
