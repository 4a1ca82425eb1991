"""Synthetic embeddings around original ones (Eq. 17), from a diagonal or from a full covariance."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from iaa.method.checks import Array, as_tensor, check_number, check_whole

BLOCK = 2**23
"""Random numbers drawn at a time for full covariances (32 MiB in float32)."""


def synthesize(
    z: Float[Tensor, "B D"] | Array,
    variance: Float[Tensor, "B D"] | Array,
    *,
    strength: float = 0.8,
    copies: int = 3,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "M B D"]:
    """``copies`` draws from N(z, strength * diag(variance)) for every row (Eq. 17), in the type of ``z``.

    The noise does not depend on ``z``: gradients of a synthetic flow to its original unchanged.
    """
    check_number("strength", strength, least=0)
    check_whole("copies", copies, least=0)
    z, variance = as_tensor("z", z), as_tensor("variance", variance)
    if not z.is_floating_point() or not variance.is_floating_point():
        raise TypeError(
            f"z and variance must hold floating-point numbers, got {z.dtype} and {variance.dtype}"
        )
    if variance.shape != z.shape:
        raise ValueError(f"variance must have z's shape {tuple(z.shape)}, got {tuple(variance.shape)}")
    # randn takes no generator where a compiler varies the shape
    noise = variance.new_empty((copies, *z.shape)).normal_(generator=generator)
    noise.mul_((strength * variance).sqrt())
    if z.dtype == torch.float16:  # its range ends at 65504, where infinity would spoil the whole loss
        return (z + noise).clamp(-65504, 65504).to(z.dtype)
    return z + noise.to(z.dtype)  # Eq. 17


def full_noise(
    rows: Float[Tensor, "U D"],
    scale: Float[Tensor, "P U"],
    which: Int[Tensor, "B"],
    *,
    copies: int,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "M B D"]:
    """Noise whose covariance for draw b is the sum over u of ``scale[which[b], u]**2 * rows[u] rows[u]^T``.

    A random combination of centred samples has their covariance, and independent Gaussians add theirs: so a
    corrected full covariance is drawn from without any (D, D) matrix per class.
    """
    draws = which.repeat(copies)
    step = max(1, BLOCK // max(1, len(rows)))
    parts = []
    for chosen in draws.split(step):
        shape = (len(chosen), len(rows))
        weights = torch.randn(shape, dtype=rows.dtype, device=rows.device, generator=generator)
        parts.append(weights.mul_(scale[chosen]) @ rows)
    return torch.cat(parts).reshape(copies, len(which), rows.shape[1])
