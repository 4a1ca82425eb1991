"""Whitening: the global within-class covariance (Eq. 14) as a metric, a linear map without any training."""

from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from iaa.method.checks import as_tensor, check_batch, check_finite, check_number, check_whole
from iaa.method.gaussians import unaffected_by_autocast
from iaa.method.rank_merge import combine_within
from iaa.method.shrinkage import choose_shrink, eigen, shrink_covariance
from iaa.method.sklearn_tags import sklearn_tags
from iaa.method.within_class import WithinClass

Shrink = float | Literal["auto"]
_BLOCK = 8192
"""Samples at a time, so that float64 copies stay small."""


@unaffected_by_autocast
def within_covariance(z: Float[Tensor, "N D"], labels: Tensor) -> Float[Tensor, "D D"]:
    """The average class covariance weighted by samples, in full (Eq. 14); one-sample classes do not count."""
    return WithinClass.of(z, check_batch(z, labels)).within.to(torch.promote_types(z.dtype, torch.float32))


@unaffected_by_autocast
def whitening_map(
    within: Float[Tensor, "D D"],
    *,
    shrink: float,
    total: Float[Tensor, "D D"] | None = None,
    dim: int | None = None,
) -> Float[Tensor, "E D"]:
    """The inverse square root of the shrunk covariance; ``dim`` keeps directions of most ``total`` variance.

    Directions that do not vary are dropped where nothing is shrunk.
    """
    eigenvalues, vectors = eigen(shrink_covariance(within, shrink))
    varies = eigenvalues > eigenvalues[-1].clamp(min=0) * len(within) * torch.finfo(within.dtype).eps
    scale = eigenvalues.clamp(min=torch.finfo(within.dtype).tiny).rsqrt().where(varies, 0)
    root: Tensor = (vectors * scale) @ vectors.T
    if dim is None or total is None:
        return root
    directions: Tensor = eigen(root @ total @ root)[1].flip(1)
    return directions[:, :dim].T @ root


def signed_power(z: Float[Tensor, "*N D"], exponent: float | Tensor) -> Float[Tensor, "*N D"]:
    """``sign(z) * |z| ** exponent``, element by element, with finite gradients at 0."""
    return z.sign() * z.abs().clamp(min=torch.finfo(z.dtype).tiny).pow(exponent)


class Whitening(nn.Module):
    """Embeddings as the variation within classes sees them: ``fit`` or ``update``, then ``transform``.

    Args:
        shrink: how far the covariance goes towards its mean variance, from 0 to 1; ``"auto"`` takes what
            ranks held-out training classes best.
        power: exponent for features that are never negative, as after a ReLU, taken before anything else;
            features with negative values stay as they are. 1 switches it off.
        dim: keep this many directions, those of most variance after whitening; all if None.

    A module of two buffers (``center``, ``weight``) and the exponent in use: it is saved, moved and exported
    like a linear layer. It is an estimator for scikit-learn, too, and takes arrays as well as tensors.

    >>> z, labels = torch.randn(40, 8), torch.arange(40) % 10
    >>> Whitening(dim=4).fit(z, labels).transform(z).shape
    torch.Size([40, 4])
    """

    center: Tensor
    weight: Tensor
    exponent: Tensor

    def __init__(self, shrink: Shrink = "auto", power: float = 0.5, dim: int | None = None) -> None:
        super().__init__()
        self.shrink, self.power, self.dim = shrink, power, dim
        self._check_options()
        self.register_buffer("center", torch.zeros(0))
        self.register_buffer("weight", torch.zeros(0, 0))
        self.register_buffer("exponent", torch.ones(()))
        self.chosen_shrink: float | None = None
        self._stats: WithinClass | None = None
        self._stale = False

    @torch.no_grad()
    def fit(self, z: Any, labels: Any) -> "Whitening":
        """Take the statistics of a whole set; what was known before is forgotten."""
        self._check_options()
        self._stats = None
        self.center, self.weight = self.center.new_zeros(0), self.weight.new_zeros(0, 0)
        self.update(z, _labels(labels))
        self.solve()
        return self

    @torch.no_grad()
    def update(self, z: Any, labels: Any) -> "Whitening":
        """Add a batch to what is known; the very first batch decides whether ``power`` applies."""
        z, labels = as_tensor("z", z), as_tensor("labels", labels)
        labels = check_batch(z, labels, dim=None if self._stats is None else self._stats.mean.shape[1])
        if self.dim is not None and self.dim > z.shape[1]:
            raise ValueError(f"dim must be at most the {z.shape[1]} features there are, got {self.dim}")
        z = z.detach().to(torch.promote_types(z.dtype, torch.float32))
        if self._stats is None:
            self.exponent = z.new_tensor(1.0 if bool((z < 0).any()) else float(self.power))
        for rows, row_labels in zip(z.split(_BLOCK), labels.split(_BLOCK), strict=True):
            batch = WithinClass.of(signed_power(rows.double(), self.exponent.double()), row_labels)
            self._stats = batch if self._stats is None else self._stats.merge(batch)
        self._stale = True
        return self

    @torch.no_grad()
    def sync(self, group: dist.ProcessGroup | None = None) -> "Whitening":
        """Combine what the ranks know of disjoint samples; all end with the same bits."""
        if self._stats is None:
            raise RuntimeError("Whitening knows no statistics yet: every rank calls fit or update first")
        self._stats = combine_within(self._stats, self.exponent, group)
        self._stale = True
        return self

    @torch.no_grad()
    def solve(self) -> "Whitening":
        """Work out the map from the statistics; ``transform`` does so by itself where it must."""
        stats = self._stats
        if stats is None:
            raise RuntimeError("Whitening knows no statistics yet: call fit(z, labels) first")
        if stats.samples == 0:
            raise ValueError(
                f"labels must name a class of at least two samples, got {len(stats.labels)} classes of one"
            )
        scale = stats.total.diagonal().sum() + stats.center.square().sum()
        if not bool(scale.isfinite()):
            raise ValueError("z is too large: its squares overflow float64, scale it down")
        if not bool(stats.within.diagonal().sum() > scale * 1e-14):
            raise ValueError("z must vary within classes, got samples that are equal to their class's mean")
        self.chosen_shrink = choose_shrink(stats) if self.shrink == "auto" else float(self.shrink)
        total = None if self.dim is None else stats.total
        weight = whitening_map(stats.within, shrink=self.chosen_shrink, total=total, dim=self.dim)
        self.center = stats.center.to(self.exponent)
        self.weight = weight.to(self.exponent)
        self._stale = False
        return self

    def forward(self, z: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        """Whitened embeddings, not normalised; gradients pass through."""
        if self._stale:
            self.solve()
        with torch.autocast(z.device.type, enabled=False):
            z = z.to(torch.promote_types(z.dtype, self.weight.dtype))
            return F.linear(signed_power(z, self.exponent) - self.center, self.weight)

    def transform(self, z: Any) -> Any:
        """Whitened embeddings (N, E), an array where an array is given."""
        if self._stale:
            self.solve()
        given = as_tensor("z", z)
        if self.weight.numel() == 0:
            raise RuntimeError("Whitening knows no statistics yet: call fit(z, labels) first")
        if given.ndim != 2 or given.shape[1] != self.weight.shape[1]:
            raise ValueError(f"z must have shape (samples, {self.weight.shape[1]}), got {tuple(given.shape)}")
        check_finite(given)
        if isinstance(z, Tensor):
            return self(z)
        return self(given).numpy()

    def fit_transform(self, z: Any, labels: Any) -> Any:
        """``fit`` and ``transform`` on the same samples."""
        return self.fit(z, labels).transform(z)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments, as scikit-learn asks for them."""
        return {"shrink": self.shrink, "power": self.power, "dim": self.dim}

    def set_params(self, **params: Any) -> "Whitening":
        """Change arguments; they take effect with the next ``fit``."""
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"Whitening has the parameters shrink, power and dim, got {name!r}")
            setattr(self, name, value)
        self._check_options()
        return self

    def __sklearn_tags__(self) -> Any:
        return sklearn_tags()

    def __sklearn_is_fitted__(self) -> bool:
        return self._stats is not None or self.weight.numel() > 0

    def extra_repr(self) -> str:
        """The arguments."""
        return f"shrink={self.shrink!r}, power={self.power}, dim={self.dim}"

    def _check_options(self) -> None:
        if isinstance(self.shrink, str):
            if self.shrink != "auto":
                raise ValueError(f"shrink must be a number from 0 to 1 or 'auto', got {self.shrink!r}")
        else:
            check_number("shrink", self.shrink, least=0, most=1)
        check_number("power", self.power, least=0, above=True)
        if self.dim is not None:
            check_whole("dim", self.dim, least=1)

    def _save_to_state_dict(self, *args: Any) -> None:
        if self._stale:
            self.solve()
        super()._save_to_state_dict(*args)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        for name in ("center", "weight"):  # room for as many features as come
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name], device=self.center.device))
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._stats, self._stale = None, False


def _labels(labels: Any) -> Tensor:
    """Whole numbers; text is numbered, which only a whole set allows."""
    if isinstance(labels, Tensor):
        return labels
    array = np.asarray(labels)
    return torch.as_tensor(array if array.dtype.kind in "iu" else np.unique(array, return_inverse=True)[1])
