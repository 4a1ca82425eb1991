"""Which class is it? Nearest image, nearest class mean, or the class Gaussian with corrected covariance."""

import functools
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from iaa.errors import unknown
from iaa.method.correction import correct, global_variance
from iaa.method.gaussians import ClassStats, estimate
from iaa.retrieval.cosine import full_precision, unit
from iaa.retrieval.input_checks import as_labels, as_vectors

How = Literal["image", "mean", "gaussian"]
BLOCK = 2**22
"""Scores of a block of queries that are held at a time."""


@dataclass(frozen=True)
class Guess:
    """Per query the likeliest classes (their labels), best first, and how well each fits."""

    label: Int64[Tensor, "q k"]
    score: Float[Tensor, "q k"]
    """Cosine to the class's nearest image or to its mean; for Gaussians a log-likelihood ratio."""


@dataclass(frozen=True)
class Frame:
    """A shift and a turn after which the average class covariance is the identity."""

    centre: Float[Tensor, " d"]
    turn: Float[Tensor, "d d"]

    def __call__(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Vectors of unit length, seen in the frame and brought to unit length again."""
        return F.normalize((unit(z) - self.centre) @ self.turn, dim=1)


@dataclass(frozen=True)
class Gaussians:
    """Class Gaussians with diagonal covariance, and the Gaussian of anything at all."""

    mean: Float[Tensor, "c d"]
    variance: Float[Tensor, "c d"]
    centre: Float[Tensor, " d"]
    spread: Float[Tensor, " d"]

    @functools.cached_property
    def parts(self) -> tuple[Float[Tensor, "c d"], Float[Tensor, "c d"], Float[Tensor, " c"]]:
        """What a squared term, a linear term and no term of a query are multiplied with."""
        precision, mean = 1 / self.variance, self.mean - self.centre
        constant = (mean.square() * precision + self.variance.log()).sum(1)
        return precision, mean * precision, constant


class Identifier:
    """The classes of a gallery, known from a few images each, asked for the likeliest class of a query.

    Args:
        z: embeddings of the gallery's images.
        labels: their classes, any integers.
        how: by the nearest ``"image"``, the nearest class ``"mean"`` (of unit vectors), or the
            ``"gaussian"`` of every class with corrected covariance (Eq. 11-16).
        reference: embeddings and labels of further classes that lend covariance, such as those trained on.
        shrink: Gaussians live in the frame of the average full covariance (Eq. 14), drawn this far towards
            a multiple of the identity; None leaves the axes of the embedding, which is quicker.
        floor: share of the average variance that every variance gets.
        neighbors: how many classes lend to one of few samples; 0 lets all of them lend, which proved as good
            as the nearest ones and needs no search.
        given_frame: a frame made before of nearly the same images; making one takes most of the time.
        options: the others of ``iaa.correct``.
    """

    def __init__(
        self,
        z: Float[Tensor, "n d"],
        labels: Int64[Tensor, " n"],
        *,
        how: How = "gaussian",
        reference: tuple[Tensor, Tensor] | None = None,
        shrink: float | None = 0.5,
        floor: float = 0.9,
        neighbors: int = 0,
        given_frame: Frame | None = None,
        **options: Any,
    ) -> None:
        if how not in get_args(How):
            raise unknown("how", how, get_args(How))
        self.how, self.dim = how, as_vectors(z).shape[1]
        self.labels, self._member = as_labels(labels, len(z)).unique(return_inverse=True)
        self.frame: Frame | None = None
        if how == "gaussian":
            lenders = (
                None if reference is None else (reference[0], reference[1].unique(return_inverse=True)[1])
            )
            if shrink is not None:
                self.frame = given_frame or frame(z, self._member, reference=lenders, shrink=shrink)
            rows = self._seen(z)
            if lenders is not None:
                lenders = self._seen(lenders[0]), lenders[1]
            self._gaussians = class_gaussians(
                rows, self._member, reference=lenders, floor=floor, neighbors=neighbors, **options
            )
            return
        self._rows = self._seen(z)
        if how == "mean":
            self._rows = F.normalize(estimate(self._rows, self._member, num_classes=len(self)).mean, dim=1)

    def __len__(self) -> int:
        return len(self.labels)

    def rank(self, query: Float[Tensor, "q d"], *, top: int = 5) -> Guess:
        """The likeliest classes of each query; all there are, if fewer."""
        z = as_vectors(query, "query")
        if z.shape[1] != self.dim:
            raise ValueError(f"query must have {self.dim} dimensions, got {z.shape[1]}")
        if top < 1:
            raise ValueError(f"top must be 1 or more, got {top}")
        step = max(1, BLOCK // max(len(self._member), len(self)))
        with full_precision(z.device):
            blocks = (self._scores(self._seen(block)) for block in z.split(step))
            best = [scores.topk(min(top, len(self)), dim=1) for scores in blocks]
        order = torch.cat([part.indices for part in best])
        return Guess(self.labels[order], torch.cat([part.values for part in best]))

    def _seen(self, z: Tensor) -> Tensor:
        return unit(z) if self.frame is None else self.frame(z)

    def _scores(self, block: Tensor) -> Tensor:
        if self.how == "gaussian":
            return likelihood_ratio(block, self._gaussians)
        similarity = block @ self._rows.T
        if self.how == "mean":
            return similarity
        best = torch.full((len(block), len(self)), -torch.inf)
        return best.scatter_reduce_(1, self._member.expand(len(block), -1), similarity, "amax")


def frame(
    z: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    *,
    reference: tuple[Tensor, Tensor] | None = None,
    shrink: float = 0.5,
) -> Frame:
    """The frame of the average full covariance of all classes (Eq. 14), in which that is the identity.

    ``shrink`` draws the covariance towards a multiple of the identity: with fewer samples than dimensions
    it would have no inverse otherwise.
    """
    if not 0 < shrink <= 1:
        raise ValueError(f"shrink must lie in (0, 1], got {shrink}")
    dim = z.shape[1]
    sets = [(z, labels), *([] if reference is None else [reference])]
    count = sum(len(rows) for rows, _ in sets)
    total = torch.zeros(dim)
    scatter = torch.zeros(dim, dim, dtype=torch.float64)
    gaps = []  # fewer samples than dimensions span a small space, in which all is quicker
    for rows, member in sets:
        directions = unit(rows)
        mean = estimate(directions, member, num_classes=int(member.max()) + 1).mean
        total = total + directions.sum(0)
        for part in torch.arange(len(rows)).split(8192):
            gap = (directions[part] - mean[member[part]]).double() / count**0.5
            gaps.append(gap) if count < dim else scatter.addmm_(gap.T, gap)  # Eq. 14
    values, vectors = _spectrum(torch.cat(gaps)) if count < dim else torch.linalg.eigh(scatter)
    level = float(values.sum()) / dim
    if level <= 0:  # one image of every class says nothing of how images of a class differ
        return Frame(total / count, torch.eye(dim))
    rest = (shrink * level) ** -0.5  # of directions in which no image differs from its class
    scale = ((1 - shrink) * values.clamp(min=0) + shrink * level).rsqrt() - rest
    turn = (vectors * scale) @ vectors.T + rest * torch.eye(dim, dtype=torch.float64)
    return Frame(total / count, turn.float())


def _spectrum(rows: Float64[Tensor, "n d"]) -> tuple[Float64[Tensor, " r"], Float64[Tensor, "d r"]]:
    """Eigenvalues and eigenvectors of rows' second moment, those that are not zero."""
    values, mixes = torch.linalg.eigh(rows @ rows.T)
    present = values > 1e-12 * values[-1].clamp(min=1e-30)
    return values[present], rows.T @ mixes[:, present] / values[present].sqrt()


def class_gaussians(
    z: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    *,
    reference: tuple[Tensor, Tensor] | None = None,
    floor: float = 0.9,
    **options: Any,
) -> Gaussians:
    """Gaussians of the classes 0 … C-1 of ``labels``; those of few samples borrow from all (Eq. 11-16).

    The mean of n samples is itself uncertain by 1/n of the variance, which is added.
    """
    if not 0 <= floor <= 1:
        raise ValueError(f"floor must lie in [0, 1], got {floor}")
    classes = int(labels.max()) + 1
    stats = estimate(z, labels, num_classes=classes)
    if reference is not None:
        more = estimate(reference[0], reference[1], num_classes=int(reference[1].max()) + 1)
        pairs = ((getattr(stats, name), getattr(more, name)) for name in ("count", "mean", "variance"))
        stats = ClassStats(*(torch.cat(pair) for pair in pairs))
    weight = stats.count.to(z.dtype) / stats.count.sum()
    overall = global_variance(stats)
    level = overall.mean() if bool(overall.any()) else torch.ones(())
    size = stats.count[:classes, None].to(z.dtype)
    variance = correct(stats, classes=torch.arange(classes), **options)
    variance = ((1 - floor) * variance + floor * level) * (1 + 1 / size)
    variance = variance.clamp(min=1e-6 * float(level))
    centre = weight @ stats.mean
    spread = overall + weight @ (stats.mean - centre).square()
    spread = ((1 - floor) * spread + floor * spread.mean()).clamp(min=1e-6 * float(level))
    mean = F.normalize(stats.mean[:classes], dim=1)  # of a few unit vectors the mean lies too far inside
    return Gaussians(mean, variance, centre, spread)


def likelihood_ratio(query: Float[Tensor, "q d"], gaussians: Gaussians) -> Float[Tensor, "q c"]:
    """Log-likelihood under every class less that under anything at all, divided by the dimensions."""
    x = query - gaussians.centre
    precision, linear, constant = gaussians.parts
    inside = x.square() @ precision.T - 2 * x @ linear.T + constant
    anything = (x.square() / gaussians.spread + gaussians.spread.log()).sum(1, keepdim=True)
    return (anything - inside) / (2 * query.shape[1])
