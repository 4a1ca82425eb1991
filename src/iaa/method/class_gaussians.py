"""Class Gaussians with corrected covariance as an estimator for scikit-learn."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from iaa.errors import unknown
from iaa.method.checks import as_tensor, check_finite
from iaa.method.correction import Scale, correct, global_variance
from iaa.method.gaussians import ClassStats, estimate
from iaa.method.neighbors import Search
from iaa.method.sklearn_tags import sklearn_tags

SMALLEST = 1e-6
"""Share of the global variance below which no class's variance falls."""


class ClassGaussians:
    """The Gaussian of every class: ``fit``, then ``transform`` to distances from the classes, or ``predict``.

    The twin of ``iaa.estimate`` and ``iaa.correct`` (Eq. 7-16), with the arguments of the latter, for
    pipelines of scikit-learn. Labels may be numbers or text.

    After ``fit``: ``classes_`` (the labels, sorted), ``stats_`` (``ClassStats``) and ``variance_``, the
    corrected variance (C, D).

    >>> z, labels = torch.randn(40, 8), torch.arange(40) % 10
    >>> ClassGaussians(neighbors=3).fit(z, labels).transform(z).shape
    torch.Size([40, 10])
    """

    classes_: Any
    stats_: ClassStats
    variance_: Tensor

    def __init__(
        self,
        *,
        neighbors: int = 25,
        mean_width: float = 1.0,
        cov_width: float = 1.0,
        global_share: float = 0.1,
        falloff: float = 0.1,
        few: float = 40,
        scale: Scale = "minmax",
        search: Search = "exact",
    ) -> None:
        self.neighbors, self.mean_width, self.cov_width = neighbors, mean_width, cov_width
        self.global_share, self.falloff, self.few = global_share, falloff, few
        self.scale: Scale = scale
        self.search: Search = search

    @torch.no_grad()
    def fit(self, z: Any, labels: Any) -> "ClassGaussians":
        """Estimate and correct the Gaussians of all classes; what was known before is forgotten."""
        given = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
        self.classes_, numbers = np.unique(given, return_inverse=True)
        self.stats_ = estimate(as_tensor("z", z), torch.as_tensor(numbers), num_classes=len(self.classes_))
        self.variance_ = correct(self.stats_, **self.get_params())
        return self

    @torch.no_grad()
    def transform(self, z: Any) -> Any:
        """The distance of every sample from every class (N, C), in deviations of the class (Mahalanobis)."""
        if not hasattr(self, "stats_"):
            raise RuntimeError("ClassGaussians knows no classes yet: call fit(z, labels) first")
        given, dim = as_tensor("z", z), self.variance_.shape[1]
        if given.ndim != 2 or given.shape[1] != dim:
            raise ValueError(f"z must have shape (samples, {dim}), got {tuple(given.shape)}")
        check_finite(given)
        variance = torch.maximum(self.variance_, SMALLEST * global_variance(self.stats_)).double()
        scale = variance.rsqrt().where(variance > 0, 0)  # what never varies says nothing
        rows, mean = given.double(), self.stats_.mean.double()
        distance = torch.stack(
            [((rows - m) * s).norm(dim=1) for m, s in zip(mean, scale, strict=True)], dim=1
        )
        distance = distance.to(self.variance_.dtype)
        return distance if isinstance(z, Tensor) else distance.numpy()

    def predict(self, z: Any) -> Any:
        """The class that each sample is nearest to, by its label."""
        return self.classes_[np.asarray(self.transform(z)).argmin(1)]

    def fit_transform(self, z: Any, labels: Any) -> Any:
        """``fit`` and ``transform`` on the same samples."""
        return self.fit(z, labels).transform(z)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments, as scikit-learn asks for them."""
        names = ("neighbors", "mean_width", "cov_width", "global_share", "falloff", "few", "scale", "search")
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> "ClassGaussians":
        """Change arguments; they take effect with the next ``fit``."""
        for name, value in params.items():
            if name not in self.get_params():
                raise unknown("a parameter of ClassGaussians", name, self.get_params())
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        return sklearn_tags()

    def __repr__(self) -> str:
        return (
            f"ClassGaussians({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"
        )
