"""Ways to make synthetic embeddings, all of one signature: the paper's Gaussian, its rivals, and our own.

A generator takes originals, labels and statistics, and gives ``copies`` synthetics for every original with
their labels: all first copies in the order of the originals, then all second ones. Partners (another sample
of the same class, or a sample of another one) are drawn at random for every copy; where a batch has none, the
original itself stands in. The mining of hard negatives that the rivals bring is left to the miner of a loss.
``strength`` belongs to those that add noise, ``mix`` to those that mix classes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from iaa.method.full_covariance import Mixture, Samples
from iaa.method.gaussians import ClassStats
from iaa.method.synthesis import synthesize

Labels = Int[Tensor, "S"] | tuple[tuple[float, Int[Tensor, "S"]], ...]
"""One label each, or (share, labels) pairs of mixed labels whose shares add up to 1."""
Generated = tuple[Float[Tensor, "S D"], Labels]


@dataclass(frozen=True)
class Statistics:
    """What a generator may know about the classes; those that need no statistics ignore it."""

    stats: ClassStats
    """Counts, means and the (corrected) variances that noise follows."""
    samples: Samples | None = None
    """Real samples, for ``residual``."""
    mixture: Mixture | None = None
    """Of which classes' deviations a corrected covariance consists, for ``residual``."""


def gaussian(
    z: Float[Tensor, "B D"],
    labels: Int[Tensor, "B"],
    statistics: Statistics,
    *,
    strength: float = 0.8,
    copies: int = 3,
    generator: torch.Generator | None = None,
) -> Generated:
    """The paper: z + e with e ~ N(0, strength * diag(variance of the class)) (Eq. 17)."""
    variance = statistics.stats.variance[labels]
    drawn = synthesize(z, variance, strength=strength, copies=copies, generator=generator)
    return drawn.flatten(0, 1), labels.repeat(copies)


def symmetry(
    z: Float[Tensor, "B D"],
    labels: Int[Tensor, "B"],
    statistics: Statistics | None = None,
    *,
    copies: int = 3,
    generator: torch.Generator | None = None,
) -> Generated:
    """Symm (Gu & Ko 2020): z mirrored at the axis through another sample x of its class.

    z' = 2 (z·x / x·x) x - z, which has the norm of z and the same similarity to x.
    """
    partner = z[_partners(labels, labels[:, None] == labels, copies, generator)]
    original = z.repeat(copies, 1)
    scale = (original * partner).sum(1, keepdim=True) / partner.square().sum(1, keepdim=True).clamp(min=1e-12)
    mirrored = 2 * scale * partner - original
    return mirrored, labels.repeat(copies)


def expansion(
    z: Float[Tensor, "B D"],
    labels: Int[Tensor, "B"],
    statistics: Statistics | None = None,
    *,
    copies: int = 3,
    generator: torch.Generator | None = None,
) -> Generated:
    """EE (Ko & Gu 2020): points between z and another sample x of its class.

    They divide the way into M + 1 equal parts, M = copies: z_k = ((M + 1 - k) z + k x) / (M + 1), k = 1 … M,
    on unit vectors, and are normalised again.
    """
    unit = F.normalize(z, dim=1)
    partner = unit[_partners(labels, labels[:, None] == labels, 1, generator)].repeat(copies, 1)
    share = torch.arange(1, copies + 1, device=z.device).repeat_interleave(len(z)) / (copies + 1)
    between = unit.repeat(copies, 1).lerp(partner, share[:, None].to(z.dtype))
    return F.normalize(between, dim=1), labels.repeat(copies)


def proxy(
    z: Float[Tensor, "B D"],
    labels: Int[Tensor, "B"],
    statistics: Statistics,
    *,
    mix: float = 0.4,
    copies: int = 3,
    generator: torch.Generator | None = None,
) -> Generated:
    """PS (Gu et al. 2021): synthetic classes between two classes, each with an embedding and a proxy.

    With x of another class and w ~ Beta(mix, mix), on unit vectors: the embedding w z + (1 - w) x and the
    proxy w m(z) + (1 - w) m(x), where the class mean m stands for a learned proxy. Both have the same new
    label, from C on: to originals they are negatives. Losses with own proxies have none for new labels.
    """
    other = _partners(labels, labels[:, None] != labels, copies, generator)
    weight = _beta(mix, len(other), z, generator)[:, None]
    unit, mean = F.normalize(z, dim=1), F.normalize(statistics.stats.mean.to(z.dtype), dim=1)
    embedding = unit[other].lerp(unit.repeat(copies, 1), weight)
    middle = mean[labels[other]].lerp(mean[labels.repeat(copies)], weight)
    new = len(mean) + torch.arange(len(other), device=z.device)
    return torch.cat([embedding, middle]), torch.cat([new, new])


def mixup(
    z: Float[Tensor, "B D"],
    labels: Int[Tensor, "B"],
    statistics: Statistics | None = None,
    *,
    mix: float = 2.0,
    copies: int = 3,
    generator: torch.Generator | None = None,
) -> Generated:
    """Metrix (Venkataramanan et al. 2022), embedding mixup: w z + (1 - w) x, with x of another class.

    w ~ Beta(mix, mix) is drawn once for a batch, and labels are mixed alike: the loss is w times that with
    the labels of z plus (1 - w) times that with the labels of x. Every loss allows that; for a sum over pairs
    it is Metrix's own, where a mixed sample is a positive with weight w and a negative with weight 1 - w.
    """
    other = _partners(labels, labels[:, None] != labels, copies, generator)
    weight = float(_beta(mix, 1, z, generator))
    mixed = z[other].lerp(z.repeat(copies, 1), weight)
    return mixed, ((weight, labels.repeat(copies)), (1 - weight, labels[other]))


def residual(
    z: Float[Tensor, "B D"],
    labels: Int[Tensor, "B"],
    statistics: Statistics,
    *,
    strength: float = 0.8,
    copies: int = 3,
    generator: torch.Generator | None = None,
) -> Generated:
    """Our own: a real deviation instead of noise, z + sqrt(strength) (x - m(x)).

    x is a sample of the class itself, of one of its neighbours or of any class, as often as these take part
    in its corrected covariance (Eq. 15): so deviations have that covariance, but the shape of real ones.
    """
    samples, mixture = statistics.samples, statistics.mixture
    if samples is None or mixture is None:
        raise ValueError("residual needs statistics with samples and mixture")
    members, parts, overall = (part[labels].repeat(copies, *[1] * (part.ndim - 1)) for part in mixture)
    source = torch.multinomial(torch.cat([parts, overall[:, None]], 1) + 1e-12, 1, generator=generator)
    anyone = source[:, 0] == parts.shape[1]
    wanted = members.gather(1, source.clamp(max=parts.shape[1] - 1))[:, 0]
    fits = (wanted[:, None] == samples.labels) | anyone[:, None]
    weight = fits * samples.weight
    row = torch.multinomial(weight + 1e-12 * ~fits.any(1, keepdim=True), 1, generator=generator)[:, 0]
    deviation = samples.rows[row] - statistics.stats.mean[samples.labels[row]]
    deviation = deviation.where(fits.any(1, keepdim=True), 0)
    return z.repeat(copies, 1) + strength**0.5 * deviation.to(z.dtype), labels.repeat(copies)


def spread(
    z: Float[Tensor, "B D"],
    labels: Int[Tensor, "B"],
    statistics: Statistics,
    *,
    strength: float = 0.8,
    copies: int = 3,
    generator: torch.Generator | None = None,
) -> Generated:
    """Our own: m + sqrt(1 - strength) (z - m) + sqrt(strength) e, e ~ N(0, diag(variance of the class)).

    Eq. 17 makes classes wider by the noise; here synthetics have the mean m and the variance of their class.
    """
    if not 0 <= strength <= 1:
        raise ValueError(f"strength must lie in [0, 1] for spread, got {strength}")
    stats = statistics.stats
    mean = stats.mean[labels].to(z.dtype).where(stats.count[labels, None] > 0, z)
    shrunk = mean + (1 - strength) ** 0.5 * (z - mean)
    return gaussian(shrunk, labels, statistics, strength=strength, copies=copies, generator=generator)


GENERATORS: dict[str, Callable[..., Generated]] = {
    "gaussian": gaussian,
    "symmetry": symmetry,
    "expansion": expansion,
    "proxy": proxy,
    "mixup": mixup,
    "residual": residual,
    "spread": spread,
}
WITHOUT_STATISTICS = ("symmetry", "expansion", "mixup")


def _partners(
    labels: Int[Tensor, "B"], allowed: Bool[Tensor, "B B"], copies: int, generator: torch.Generator | None
) -> Int[Tensor, "MB"]:
    """For every copy of every sample, another sample that is allowed, at random; itself if there is none."""
    eye = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    others = allowed & ~eye
    weight = (others | (eye & ~others.any(1, keepdim=True))).float()
    drawn: Tensor = torch.multinomial(weight, copies, replacement=True, generator=generator)
    return drawn.T.flatten()


def _beta(a: float, size: int, like: Tensor, generator: torch.Generator | None) -> Float[Tensor, "n"]:
    """Draws from Beta(a, a), as the share of the first of two Gamma(a) draws."""
    shape = torch.full((2, size), a, device=like.device)
    first, second = torch._standard_gamma(shape, generator=generator) + 1e-30
    share: Tensor = first / (first + second)
    return share.to(like.dtype)
