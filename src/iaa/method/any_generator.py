"""``Augmentation``: ``IAA`` with another generator of synthetics, to compare them under equal conditions."""

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Integer
from torch import Tensor

from iaa.errors import unknown
from iaa.method.augment import IAA
from iaa.method.checks import Array, as_tensor, check_batch, check_number
from iaa.method.full_covariance import Mixture
from iaa.method.gaussians import ClassStats
from iaa.method.generators import GENERATORS, WITHOUT_STATISTICS, Labels, Statistics


class Augmentation(IAA):
    """Synthetics by any generator of ``iaa.method.generators``, on the statistics of ``IAA``.

    Args:
        generator: gaussian, symmetry, expansion, proxy, mixup, residual or spread.
        mix: parameter of the Beta distribution for proxy and mixup; that of their papers if None.

    The others are those of ``IAA``. Symmetry, expansion and mixup need neither ``fit`` nor ``update``.

    >>> z, labels = torch.randn(8, 3), torch.arange(8) % 2
    >>> synthetic, synthetic_labels = Augmentation("symmetry", num_classes=2, dim=3, copies=2)(z, labels)
    >>> synthetic.shape
    torch.Size([16, 3])
    """

    def __init__(
        self, generator: str, num_classes: int, dim: int, *, mix: float | None = None, **options: Any
    ) -> None:
        if generator not in GENERATORS:
            raise unknown("generator", generator, GENERATORS)
        if mix is not None:
            check_number("mix", mix, least=0, above=True)
        if generator == "residual":
            options["covariance"] = "full"  # keeps the samples
        super().__init__(num_classes, dim, **options)
        self.generator, self.mix = generator, mix
        self.makes_classes = generator == "proxy"
        self.ready = generator in WITHOUT_STATISTICS

    def forward(  # type: ignore[override]
        self,
        z: Float[Tensor, "B D"] | Array,
        labels: Integer[Tensor, "B"] | Array,
        *,
        generator: torch.Generator | None = None,
    ) -> tuple[Float[Tensor, "S D"], Labels]:
        """Synthetic embeddings and their labels."""
        if not self.ready:
            raise RuntimeError("no statistics yet: call fit(z, labels) or update(z, labels) first")
        z, labels = as_tensor("z", z), as_tensor("labels", labels)
        labels = check_batch(z, labels, num_classes=self.num_classes, dim=self.dim)
        make = GENERATORS[self.generator]
        options = {
            "copies": self.copies,
            "strength": self._strength(),
            "mix": self.mix,
            "generator": generator,
        }
        taken = inspect.signature(make).parameters
        given = {name: value for name, value in options.items() if name in taken and value is not None}
        with torch.autocast(z.device.type, enabled=False):
            z = F.normalize(z, dim=1) if self.space == "unit" else z
            synthetic, synthetic_labels = make(z, labels, self._statistics(labels), **given)
        return synthetic, synthetic_labels

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        return f"{self.generator!r}, {super().extra_repr()}"

    @torch.no_grad()
    def _statistics(self, labels: Int[Tensor, "B"]) -> Statistics | None:
        """What the generator needs to know about the classes of a batch."""
        if self.generator in WITHOUT_STATISTICS:
            return None
        mixture: Mixture | None = None
        variance = self.own_variance
        if self.generator == "residual":
            classes = labels.unique()
            mixture = tuple(  # type: ignore[assignment]
                part.new_zeros((self.num_classes, *part.shape[1:])).index_copy_(0, classes, part)
                for part in self._mixture_of(classes)
            )
        elif self.generator != "proxy":
            variance = self.variance
            if self.streams:
                variance = torch.zeros_like(variance).index_copy_(0, labels, self._variance_of(labels))
        samples = self.samples if self.generator == "residual" else None
        return Statistics(ClassStats(self.count, self.mean, variance), samples, mixture)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.ready = self.ready or self.generator in WITHOUT_STATISTICS
