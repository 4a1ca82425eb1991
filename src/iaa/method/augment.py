"""``IAA``: the method as a module that keeps class statistics and draws synthetic embeddings from them."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Float, Int, Integer
from torch import Tensor, nn

from iaa.errors import unknown
from iaa.method.checks import (
    Array,
    as_tensor,
    check_batch,
    check_number,
    check_options,
    check_whole,
    largest_magnitude,
)
from iaa.method.correction import Scale, correct, global_variance
from iaa.method.full_covariance import Mixture, Samples, mixture
from iaa.method.gaussians import ClassStats, estimate
from iaa.method.neighbors import Search
from iaa.method.rank_merge import combine_samples, combine_stats
from iaa.method.synthesis import synthesize

Covariance = Literal["diagonal", "full", "global", "identity"]
Around = Literal["sample", "mean"]
Space = Literal["raw", "unit"]

FACTOR_LIFE = 50
"""Updates after which the factor of the global full covariance is worked out anew."""


class IAA(nn.Module):
    """Intra-class adaptive augmentation: ``fit`` or ``update``, then call for synthetic embeddings.

    Args:
        num_classes: how many classes the labels may name.
        dim: dimensions of an embedding.
        covariance: what noise follows: each class's ``"diagonal"`` or ``"full"`` covariance, the ``"global"``
            diagonal for all classes, or the ``"identity"``.
        correction: whether classes with few samples borrow covariance from their neighbours.
        around: synthetics lie around each ``"sample"`` (the paper's dynamic) or its class ``"mean"`` (fixed).
        space: statistics and noise in the ``"raw"`` embedding space, or after normalising to ``"unit"``.
        strength: the variance of the noise as a share of the class's, or a function from the number of
            training calls so far to that share. The default is the paper's; ``iaa train`` uses 0.2, which
            scored higher on held-out emoji classes.
        copies: synthetics per original.
        decay: in ``update``, how much of a class's past is kept when it comes again; 1 forgets nothing.
        refresh_every: epochs between two fits; for the training loop, see ``due``.

    The others are those of ``iaa.correct``. Statistics are buffers: they move with ``to`` and are part of the
    ``state_dict``; there are no parameters.

    >>> augment = IAA(num_classes=2, dim=3, copies=2)
    >>> z, labels = torch.randn(8, 3), torch.arange(8) % 2
    >>> synthetic, synthetic_labels = augment.fit(z, labels)(z, labels)
    >>> synthetic.shape, synthetic_labels.shape
    (torch.Size([16, 3]), torch.Size([16]))
    """

    count: Tensor
    mean: Tensor
    own_variance: Tensor
    calls: Tensor
    streams: Tensor
    rows: Tensor
    row_labels: Tensor
    row_weight: Tensor
    factor: Tensor
    factor_age: Tensor

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        covariance: Covariance = "diagonal",
        correction: bool = True,
        around: Around = "sample",
        space: Space = "raw",
        strength: float | Callable[[int], float] = 0.8,
        copies: int = 3,
        neighbors: int = 25,
        mean_width: float = 1.0,
        cov_width: float = 1.0,
        global_share: float = 0.1,
        falloff: float = 0.1,
        few: float = 40,
        scale: Scale = "minmax",
        search: Search = "exact",
        decay: float = 1.0,
        refresh_every: int = 4,
    ) -> None:
        super().__init__()
        check_whole("num_classes", num_classes, least=1)
        check_whole("dim", dim, least=1)
        check_whole("copies", copies, least=0)
        check_whole("refresh_every", refresh_every, least=1)
        check_number("decay", decay, least=0, most=1)
        if not callable(strength):
            check_number("strength", strength, least=0)
        for name, value, options in (
            ("covariance", covariance, get_args(Covariance)),
            ("around", around, get_args(Around)),
            ("space", space, get_args(Space)),
        ):
            if value not in options:
                raise unknown(name, value, options)
        self.num_classes, self.dim = num_classes, dim
        self.covariance, self.correction, self.around, self.space = covariance, correction, around, space
        self.strength, self.copies, self.decay, self.refresh_every = strength, copies, decay, refresh_every
        self.options: dict[str, Any] = {
            "neighbors": neighbors,
            "mean_width": mean_width,
            "cov_width": cov_width,
            "global_share": global_share,
            "falloff": falloff,
            "few": few,
            "scale": scale,
            "search": search,
        }
        check_options(**self.options)
        self.register_buffer("count", torch.zeros(num_classes))
        self.register_buffer("mean", torch.zeros(num_classes, dim))
        self.register_buffer("own_variance", torch.zeros(num_classes, dim))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("streams", torch.zeros((), dtype=torch.bool))
        if covariance == "full":
            self.register_buffer("rows", torch.zeros(0, dim))
            self.register_buffer("row_labels", torch.zeros(0, dtype=torch.long))
            self.register_buffer("row_weight", torch.zeros(0))
            self.register_buffer("factor", torch.zeros(0, dim))
            self.register_buffer("factor_age", torch.zeros((), dtype=torch.long))
        self.ready = False
        self._table: Tensor | None = None
        self._mixture: Mixture | None = None

    @property
    def stats(self) -> ClassStats:
        """The class statistics as estimated, before any correction."""
        return ClassStats(self.count, self.mean, self.own_variance)

    @property
    def samples(self) -> Samples:
        """What full covariances are drawn from."""
        return Samples(self.rows, self.row_labels, self.row_weight)

    @property
    def variance(self) -> Float[Tensor, "C D"]:
        """The variance that noise follows, for every class: corrected; of a full covariance the diagonal."""
        if self._table is None or self._table.device != self.mean.device:
            self._table = self._variance_of(torch.arange(self.num_classes, device=self.mean.device))
        return self._table

    @torch.no_grad()
    def fit(self, z: Float[Tensor, "N D"] | Array, labels: Integer[Tensor, "N"] | Array) -> "IAA":
        """Take the statistics of a whole set; what was known before is forgotten."""
        z, labels = self._prepare(z, labels)
        self._keep(estimate(z, labels, num_classes=self.num_classes), streams=False)
        if self.covariance == "full":
            self._keep_samples(Samples.of(z.clone(), labels))
        return self

    @torch.no_grad()
    def update(self, z: Float[Tensor, "N D"] | Array, labels: Integer[Tensor, "N"] | Array) -> "IAA":
        """Add a batch to what is known; a class that comes again keeps ``decay`` of its past.

        From then on only the classes of a batch are corrected when it is augmented, so that statistics
        can change at every step of a training.
        """
        z, labels = (part.to(self.mean.device) for part in self._prepare(z, labels))
        classes, inverse = labels.unique(return_inverse=True)
        past = self.stats.take(classes).to(torch.float64)
        past = ClassStats(past.count * self.decay, past.mean, past.variance)
        batch = estimate(z.double(), inverse, num_classes=len(classes))
        self._keep(past.merge(batch), classes, streams=True)
        if self.covariance == "full":
            self._keep_samples(self.samples.add(Samples.of(z.clone(), labels), decay=self.decay))
        return self

    @torch.no_grad()
    def sync(self, group: dist.ProcessGroup | None = None) -> "IAA":
        """Combine what the ranks of a distributed run know of disjoint samples; all end with the same bits.

        Call it on every rank after each rank's ``fit`` on its own part. Twice would count everything twice.
        """
        self._keep(combine_stats(self.stats, group), streams=bool(self.streams))
        if self.covariance == "full":
            self._keep_samples(combine_samples(self.samples, group))
        return self

    def due(self, epoch: int) -> bool:
        """Whether the statistics are to be taken anew before this epoch, counted from 0."""
        return epoch % self.refresh_every == 0

    def forward(
        self,
        z: Float[Tensor, "B D"] | Array,
        labels: Integer[Tensor, "B"] | Array,
        *,
        generator: torch.Generator | None = None,
    ) -> tuple[Float[Tensor, "MB D"], Int[Tensor, "MB"]]:
        """Synthetic embeddings and their labels: all first copies in the order of ``z``, then all second."""
        if not self.ready:
            raise RuntimeError("IAA knows no statistics yet: call fit(z, labels) or update(z, labels) first")
        z, labels = as_tensor("z", z), as_tensor("labels", labels)
        labels = check_batch(z, labels, num_classes=self.num_classes, dim=self.dim)
        drawn: dict[str, Any] = {"copies": self.copies, "generator": generator}
        strength = self._strength()
        with torch.autocast(z.device.type, enabled=False):
            center = self._center(z, labels)
            if self.covariance == "full":
                synthetic = center + strength**0.5 * self._full_noise(labels, **drawn).to(z.dtype)  # Eq. 17
            else:
                variance = self._variance_of(labels) if self.streams else self.variance[labels]
                synthetic = synthesize(center, variance, strength=strength, **drawn)
        return synthetic.flatten(0, 1), labels.repeat(self.copies)

    def extra_repr(self) -> str:
        """The options, for ``repr``."""
        own = ("covariance", "correction", "around", "space", "strength", "copies", "decay", "refresh_every")
        options = {name: getattr(self, name) for name in own} | self.options
        shown = [f"{name}={value!r}" for name, value in options.items()]
        return ", ".join([f"num_classes={self.num_classes}", f"dim={self.dim}", *shown])

    def _prepare(self, z: Any, labels: Any) -> tuple[Tensor, Tensor]:
        z, labels = as_tensor("z", z), as_tensor("labels", labels)
        labels = check_batch(z, labels, num_classes=self.num_classes, dim=self.dim)
        z = z.detach().float()
        return F.normalize(z, dim=1) if self.space == "unit" else z, labels

    def _center(self, z: Tensor, labels: Tensor) -> Tensor:
        if self.space == "unit":
            z = F.normalize(z, dim=1)
        if self.around == "sample":
            return z
        return self.mean[labels].to(z.dtype).where(self.count[labels, None] > 0, z)

    def _strength(self) -> float:
        if not callable(self.strength):
            return self.strength
        strength = float(self.strength(int(self.calls)))
        check_number("strength", strength, least=0)
        self.calls += self.training
        return strength

    @torch.no_grad()
    def _variance_of(self, labels: Int[Tensor, "B"]) -> Float[Tensor, "B D"]:
        """The variance of each label's class, corrected for the classes that occur alone."""
        if self.covariance == "identity":
            return torch.ones_like(self.mean[labels])
        if self.covariance == "global":
            return global_variance(self.stats).expand(len(labels), -1)
        if not self.correction:
            return self.own_variance[labels]
        classes, inverse = labels.unique(return_inverse=True)
        return correct(self.stats, classes=classes, **self.options)[inverse]

    @torch.no_grad()
    def _full_noise(
        self, labels: Int[Tensor, "B"], *, copies: int, generator: torch.Generator | None
    ) -> Float[Tensor, "M B D"]:
        """Noise from the corrected full covariance; the parts of the mixture are drawn apart and add up."""
        classes, which = labels.unique(return_inverse=True)
        members, parts, overall = self._mixture_of(classes)
        noise = self.samples.noise(self.stats, members, parts, which, copies=copies, generator=generator)
        if not overall.any():
            return noise
        if len(self.factor) == 0 or self.factor_age >= FACTOR_LIFE:
            self.factor = self.samples.global_factor(self.stats)
            self.factor_age.zero_()
        normal = torch.randn(noise.shape, dtype=noise.dtype, device=noise.device, generator=generator)
        return noise + overall[which, None].sqrt() * (normal @ self.factor)

    def _mixture_of(self, classes: Int[Tensor, "P"]) -> Mixture:
        if self.streams:
            return mixture(self.stats, classes, correction=self.correction, **self.options)
        if self._mixture is None or self._mixture[0].device != classes.device:
            everyone = torch.arange(self.num_classes, device=classes.device)
            self._mixture = mixture(self.stats, everyone, correction=self.correction, **self.options)
        members, parts, overall = self._mixture
        return members[classes], parts[classes], overall[classes]

    def _keep(self, stats: ClassStats, classes: Tensor | None = None, *, streams: bool) -> None:
        largest = largest_magnitude(stats.variance) * max(1.0, float(stats.count.sum()))
        if not largest < torch.finfo(self.mean.dtype).max:  # nor may sums over all samples overflow
            raise ValueError("z is too large: the sums of its squares overflow float32, scale it down")
        where = slice(None) if classes is None else classes
        self.count[where] = stats.count.to(self.count)
        self.mean[where] = stats.mean.to(self.mean)
        self.own_variance[where] = stats.variance.to(self.own_variance)
        self.streams.fill_(streams)
        self.ready, self._table, self._mixture = True, None, None
        if self.covariance == "full":
            self.factor_age += 1
            self.factor = self.factor if streams else self.factor[:0]

    def _keep_samples(self, samples: Samples) -> None:
        self.rows, self.row_labels = samples.rows.to(self.mean), samples.labels.to(self.mean.device)
        self.row_weight = samples.weight.to(self.mean)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "IAA":
        def in_full_precision(tensor: Tensor) -> Tensor:  # half of it would stop counting at 256 samples
            moved = fn(tensor)
            halved = moved.is_floating_point() and moved.element_size() < 4
            return tensor.to(moved.device) if halved else moved

        super()._apply(in_full_precision, recurse)  # type: ignore[no-untyped-call]
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        for name in ("rows", "row_labels", "row_weight", "factor"):  # room for as many samples as come
            if self.covariance == "full" and prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name], device=self.mean.device))
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.ready = bool((self.count > 0).any())
        self._table = self._mixture = None
