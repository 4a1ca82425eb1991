"""Each generator's equation as slow loops over samples and copies, given whom chance made partners."""

import torch
from torch import Tensor


def symmetry(z: Tensor, partner: list[int]) -> Tensor:
    """Gu & Ko 2020: the mirror image at the axis through the partner."""
    rows = []
    for row, other in enumerate(partner):
        own, axis = z[row % len(z)], z[other]
        projection = axis * sum(a * b for a, b in zip(own, axis, strict=True)) / sum(a * a for a in axis)
        rows.append(2 * projection - own)
    return torch.stack(rows)


def expansion(z: Tensor, partner: list[int], copies: int) -> Tensor:
    """Ko & Gu 2020: points that divide the way to the partner into copies + 1 equal parts."""
    rows = []
    for k in range(1, copies + 1):
        for i in range(len(z)):
            own, other = z[i] / z[i].norm(), z[partner[i]] / z[partner[i]].norm()
            point = ((copies + 1 - k) * own + k * other) / (copies + 1)
            rows.append(point / point.norm())
    return torch.stack(rows)


def mixed(z: Tensor, partner: list[int], weight: list[float]) -> Tensor:
    """w z + (1 - w) x (Gu et al. 2021; Venkataramanan et al. 2022)."""
    return torch.stack(
        [
            w * z[row % len(z)] + (1 - w) * z[other]
            for row, (other, w) in enumerate(zip(partner, weight, strict=True))
        ]
    )


def spread(
    z: Tensor, mean: Tensor, variance: Tensor, labels: Tensor, noise: Tensor, strength: float
) -> Tensor:
    rows = []
    for row in range(len(noise)):
        i = row % len(z)
        center, width = mean[labels[i]], variance[labels[i]]
        rows.append(center + (1 - strength) ** 0.5 * (z[i] - center) + (strength * width) ** 0.5 * noise[row])
    return torch.stack(rows)
