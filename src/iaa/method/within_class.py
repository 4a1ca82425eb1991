"""Sums behind the within-class covariance (Eq. 14, full): they add up over batches and over ranks."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

KEPT = 4096
"""Samples kept to choose the shrinkage by; they are those of whole classes."""


@dataclass(frozen=True)
class WithinClass:
    """Counts and means of the classes seen, their pooled scatter, and the samples of some classes.

    All in float64, which autocast leaves alone. Which classes keep their samples depends on labels and sizes
    alone, so that neither the order of batches nor the number of ranks changes anything.
    """

    labels: Int[Tensor, "C"]
    count: Float[Tensor, "C"]
    mean: Float[Tensor, "C D"]
    scatter: Float[Tensor, "D D"]
    rows: Float[Tensor, "K D"]
    row_labels: Int[Tensor, "K"]

    @classmethod
    def of(cls, z: Float[Tensor, "N D"], labels: Int[Tensor, "N"]) -> "WithinClass":
        """The sums of a batch."""
        z = z.double()
        classes, inverse = labels.unique(return_inverse=True)
        count = torch.bincount(inverse, minlength=len(classes)).double()
        mean = z.new_zeros(len(classes), z.shape[1]).index_add_(0, inverse, z) / count[:, None]  # Eq. 7
        centred = z - mean[inverse]
        return cls(classes, count, mean, centred.T @ centred, z, labels)._thinned()

    def merge(self, other: "WithinClass") -> "WithinClass":
        """The sums of the union of two disjoint sets of samples, exact but for rounding."""
        classes, inverse = torch.cat([self.labels, other.labels]).unique(return_inverse=True)
        mine, theirs = inverse[: len(self.labels)], inverse[len(self.labels) :]
        (n, mean), (m, other_mean) = (
            (
                part.count.new_zeros(len(classes)).index_copy_(0, at, part.count),
                part.mean.new_zeros(len(classes), part.mean.shape[1]).index_copy_(0, at, part.mean),
            )
            for part, at in ((self, mine), (other, theirs))
        )
        count, shift = n + m, other_mean - mean
        apart = (n * m / count)[:, None] * shift  # zero for classes that only one of the two knows
        return WithinClass(
            classes,
            count,
            mean + (m / count)[:, None] * shift,
            self.scatter + other.scatter + shift.T @ apart,
            torch.cat([self.rows, other.rows]),
            torch.cat([self.row_labels, other.row_labels]),
        )._thinned()

    @property
    def center(self) -> Float[Tensor, "D"]:
        """The mean of all samples."""
        return self.count @ self.mean / self.count.sum()

    @property
    def samples(self) -> float:
        """Samples of classes that have two or more; the others say nothing about variation."""
        return float(self.count[self.count > 1].sum())

    @property
    def within(self) -> Float[Tensor, "D D"]:
        """The average class covariance weighted by samples (Eq. 14), of classes of two samples or more."""
        return self.scatter / max(self.samples, 1)

    @property
    def total(self) -> Float[Tensor, "D D"]:
        """The covariance of all samples around their common mean."""
        apart = self.mean - self.center
        return (self.scatter + (self.count[:, None] * apart).T @ apart) / self.count.sum()

    def without(self, held_out: Int[Tensor, "H"]) -> "WithinClass":
        """The sums without some of the classes whose samples are kept."""
        gone = torch.isin(self.row_labels, held_out)
        part, stays = (
            WithinClass.of(self.rows[gone], self.row_labels[gone]),
            ~torch.isin(self.labels, held_out),
        )
        return WithinClass(
            self.labels[stays],
            self.count[stays],
            self.mean[stays],
            self.scatter - part.scatter,
            self.rows[~gone],
            self.row_labels[~gone],
        )

    def kept_classes(self) -> Int[Tensor, "H"]:
        """Classes whose samples are kept, in an order that follows nothing in the data."""
        order = _shuffled(self.labels)
        fits = self.count[order].cumsum(0) <= KEPT
        return self.labels[order][fits]

    def _thinned(self) -> "WithinClass":
        """Without the samples of classes that no longer fit."""
        keep = torch.isin(self.row_labels, self.kept_classes())
        if bool(keep.all()):
            return self
        return WithinClass(
            self.labels, self.count, self.mean, self.scatter, self.rows[keep], self.row_labels[keep]
        )


def _shuffled(labels: Int[Tensor, "C"]) -> Int[Tensor, "C"]:
    """A fixed order of classes: neighbouring labels are often alike, and land far apart."""
    return (labels * 2654435761 % 2**32).argsort(stable=True)
