"""Heads from features to embeddings: trained, computed in closed form, or none; and a head on vectors."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from iaa.errors import unknown
from iaa.method.whitening import Whitening, signed_power

HeadKind = Literal["linear", "power", "whitening", "none"]
"""``power`` is a linear head behind the signed power of a whitening, which it can start from."""
FLOOR = 1e-4
"""Added to features before a root, whose gradient is infinite at 0."""


class PowerLinear(nn.Linear):
    """A linear layer on the signed power of its input; an exponent of 1 is a plain linear layer."""

    exponent: Tensor

    def __init__(self, features: int, dim: int) -> None:
        super().__init__(features, dim)
        self.register_buffer("exponent", torch.ones(()))

    def forward(self, z: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        """Embeddings, not normalised."""
        raised = z.abs() + FLOOR * (self.exponent < 1)  # a root has no gradient at 0
        return F.linear(signed_power(z.sign() * raised, self.exponent), self.weight, self.bias)

    @torch.no_grad()
    def start_from(self, whitening: Whitening, *, scale: float = 1.0) -> None:
        """Take over a whitening times ``scale``; further dimensions than it has start small."""
        rows = len(whitening.weight)
        self.exponent.copy_(whitening.exponent)
        self.weight.mul_(whitening.weight.norm(dim=1).mean() / self.weight.norm(dim=1).mean() * 0.1)
        self.weight[:rows] = whitening.weight[: len(self.weight)]
        self.weight.mul_(scale)
        self.bias.copy_(-self.weight @ whitening.center)


def make_head(kind: HeadKind, features: int, dim: int | None) -> nn.Module:
    """A head for ``features``; a whitening is still to be fitted, and has all features if ``dim`` is None."""
    if dim is not None and dim < 1:
        raise ValueError(f"dim must be 1 or more, or None for the bare features; got {dim}")
    if kind == "none" or (dim is None and kind == "linear"):
        return nn.Identity()
    if kind == "whitening":
        width = features if dim is None else min(dim, features)
        whitening = Whitening(dim=None if width == features else width)
        whitening.center, whitening.weight = torch.zeros(features), torch.zeros(width, features)
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


class VectorHead(nn.Module):
    """Vectors of any kind in, un-normalised embeddings out."""

    def __init__(
        self, features: int, *, dim: int | None = 512, hidden: Sequence[int] = (), head: HeadKind = "linear"
    ) -> None:
        super().__init__()
        for width in hidden:
            if width < 1:
                raise ValueError(f"hidden must be 1 or more, got {width}")
        if hidden and head != "linear":
            raise ValueError(f"hidden layers need a linear head that starts at random, got head {head}")
        layers: list[nn.Module] = []
        for before, after in pairwise((features, *hidden)):
            layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU(inplace=True)]
        last = make_head(head, (features, *hidden)[-1], dim)
        self.head = nn.Sequential(*layers, last)
        self.features, self.dim, self.hidden = features, head_dim(last, features), tuple(hidden)

    def forward(self, vectors: Float[Tensor, "batch features"]) -> Float[Tensor, "batch {self.dim}"]:
        """Embeddings of vectors."""
        embeddings: Tensor = self.head(vectors)
        return embeddings

    def parameter_groups(
        self, lr: float = 1e-3, head_factor: float = 1.0, weight_decay: float = 4e-4
    ) -> list[dict[str, Any]]:
        """One group for an optimiser."""
        parameters = list(self.parameters())
        if not parameters:
            return []
        return [{"name": "head", "params": parameters, "lr": lr * head_factor, "weight_decay": weight_decay}]

    def describe(self) -> str:
        """One line: widths and size."""
        widths = " - ".join(map(str, (self.features, *self.hidden, self.dim)))
        kind = head_name(self.head[-1])
        return f"{kind} {widths}: {sum(p.numel() for p in self.parameters()) / 1e6:.2f} M parameters"
