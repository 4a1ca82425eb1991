"""Neighbour correction (Eq. 11-16): a class with few samples borrows covariance from similar classes."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Num
from torch import Tensor

from iaa.method.checks import check_number, check_options
from iaa.method.gaussians import ClassStats, check_stats, in_range, unaffected_by_autocast
from iaa.method.neighbors import Search, find_neighbors

Scale = Literal["minmax"] | None

BLOCK = 2**20
"""Numbers a block of gathered neighbours may hold (4 MiB in float32): small enough to stay in the cache."""


def correction_weight(
    count: Num[Tensor, "C"], *, falloff: float = 0.1, few: float = 40
) -> Float[Tensor, "C"]:
    """How much a class borrows from others: 1 for a single sample, 0 above ``few`` (Eq. 16).

    >>> correction_weight(torch.tensor([1, 11, 41]))
    tensor([1.0000, 0.5906, 0.0000])
    """
    check_number("falloff", falloff, least=0)
    check_number("few", few, least=0)
    count = count.clamp(min=1)  # a class never seen knows no more than one seen once
    weight = 1 / (1 + torch.log1p(falloff * (count - 1)))  # Eq. 16
    return weight.where(count <= few, 0)


@unaffected_by_autocast
def global_variance(stats: ClassStats) -> Float[Tensor, "D"]:
    """The average class covariance, weighted by samples (Eq. 14)."""
    return _global_variance(check_stats(stats))


def _global_variance(stats: ClassStats) -> Float[Tensor, "D"]:
    count = stats.count.to(stats.variance.dtype)
    variance, divisor = in_range(stats.variance)
    return count @ variance / count.sum().clamp(min=1) * divisor  # Eq. 14


@unaffected_by_autocast
def correct(
    stats: ClassStats,
    *,
    neighbors: int = 25,
    mean_width: float = 1.0,
    cov_width: float = 1.0,
    global_share: float = 0.1,
    falloff: float = 0.1,
    few: float = 40,
    scale: Scale = "minmax",
    search: Search = "exact",
    classes: Int[Tensor, "Q"] | None = None,
) -> Float[Tensor, "Q D"]:
    """The corrected variance of every class, or of ``classes`` alone (Eq. 11-16).

    No (C, C) matrix is ever held: distances are worked through in blocks. Where nobody can lend, the global
    variance stands in. ``search="approximate"`` finds neighbours with faiss, for very many classes.
    """
    kernel: dict[str, Any] = {
        "neighbors": neighbors,
        "mean_width": mean_width,
        "cov_width": cov_width,
        "scale": scale,
    }
    check_options(**kernel, global_share=global_share, falloff=falloff, few=few, search=search)
    stats = check_stats(stats)
    if classes is None:
        classes = torch.arange(len(stats.count), device=stats.mean.device)
    variance = stats.variance[classes]
    alpha = correction_weight(stats.count[classes].to(variance.dtype), falloff=falloff, few=few)
    borrows = (alpha > 0).nonzero().flatten()
    if len(borrows) == 0:
        return variance
    near, shares = lenders(stats, classes[borrows], **kernel, search=search)
    overall = _global_variance(stats)
    borrowed = overall.expand(len(borrows), -1)
    if near.shape[1] > 0:
        lent = F.embedding_bag(near, stats.variance, per_sample_weights=shares, mode="sum")  # Eq. 12
        borrowed = lent.where(shares.sum(1, keepdim=True) > 0, borrowed)
    alpha = alpha[borrows, None]
    mixed = borrowed.lerp(overall, global_share)
    return variance.index_put((borrows,), variance[borrows].lerp(mixed, alpha))  # Eq. 15


@unaffected_by_autocast
def lenders(
    stats: ClassStats,
    classes: Int[Tensor, "Q"],
    *,
    neighbors: int = 25,
    mean_width: float = 1.0,
    cov_width: float = 1.0,
    scale: Scale = "minmax",
    search: Search = "exact",
) -> tuple[Int[Tensor, "Q K"], Float[Tensor, "Q K"]]:
    """The neighbours of each class and the share each lends; shares sum to 1, or to 0 where nobody lends.

    Classes never seen have no mean to be near to, and so no neighbours.
    """
    mean, mean_divisor = in_range(stats.mean)
    variance, cov_divisor = in_range(stats.variance)
    stats = ClassStats(stats.count, mean, variance)
    hood = find_neighbors(stats, classes, neighbors, search=search, ends=scale is not None)
    if hood.near.numel() == 0:
        return hood.near, mean.new_zeros(hood.near.shape)
    step = max(1, BLOCK // (hood.near.shape[1] * mean.shape[1]))
    squared_mean, log_count = mean.square(), stats.count.to(mean.dtype).log()
    valid = hood.valid & (stats.count[classes, None] > 0)
    shares = []
    for rows in torch.arange(len(classes), device=classes.device).split(step):
        own, near = classes[rows], hood.near[rows]
        d_mean = _gap(squared_mean, own, near)  # Eq. 9
        d_cov = _gap(variance, own, near)  # Eq. 10
        if scale == "minmax":
            d_mean = _minmax(d_mean, _gap(squared_mean, own, hood.mean_ends[rows]))
            d_cov = _minmax(d_cov, _gap(variance, own, hood.cov_ends[rows]))
        else:  # as they are: their squares may need the range of float64
            d_mean, d_cov = d_mean.double() * mean_divisor**2, d_cov.double() * cov_divisor
        kernel = -(d_mean**2) / (2 * mean_width**2) - d_cov**2 / (2 * cov_width**2)
        logits = log_count[near] + kernel  # Eq. 13, whose printed form is 0/0 once distances are large
        alone = ~valid[rows].any(1, keepdim=True)
        share = logits.where(valid[rows] | alone, -torch.inf).softmax(1).where(~alone, 0)
        shares.append(share.to(mean.dtype))
    return hood.near, torch.cat(shares)


def _gap(
    rows: Float[Tensor, "C D"], own: Int[Tensor, "B"], others: Int[Tensor, "B K"]
) -> Float[Tensor, "B K"]:
    """Euclidean distance of each class to some others."""
    exact = "donot_use_mm_for_euclid_dist"
    gathered = rows.index_select(0, others.flatten()).unflatten(0, others.shape)  # twice as quick as indexing
    return torch.cdist(rows[own][:, None], gathered, compute_mode=exact)[:, 0]


def _minmax(distance: Float[Tensor, "B K"], bounds: Float[Tensor, "B 2"]) -> Float[Tensor, "B K"]:
    """Distances brought to [0, 1] between the nearest and the farthest lender; 0 where these coincide."""
    low, high = bounds[:, :1], bounds[:, 1:]
    span = high - low
    return ((distance - low) / span.where(span > 0, 1)).where(span > 0, 0).clamp(0, 1)
