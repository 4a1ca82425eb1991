"""A head on precomputed vectors: linear, or with hidden layers."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from iaa.models.heads import HeadKind, head_dim, head_name, make_head


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
