"""Deep metric learning with intra-class adaptive augmentation and neighbour correction."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iaa import losses
    from iaa.analysis.spearman import spearman
    from iaa.boosting import BoostedLoss
    from iaa.config import Config
    from iaa.gallery.gallery import Gallery
    from iaa.inference import Model, load
    from iaa.method.any_generator import Augmentation
    from iaa.method.augment import IAA
    from iaa.method.class_gaussians import ClassGaussians
    from iaa.method.correction import correct, correction_weight, global_variance
    from iaa.method.gaussians import ClassStats, cov_distance, estimate, mean_distance
    from iaa.method.synthesis import synthesize
    from iaa.method.whitening import Whitening
    from iaa.report import report
    from iaa.retrieval.embeddings import Embeddings
    from iaa.retrieval.evaluation import evaluate
    from iaa.retrieval.metrics import score
    from iaa.runs import Run
    from iaa.train import train

__version__ = "0.1.0"

_LAZY: dict[str, str] = {
    "IAA": "iaa.method.augment",
    "Augmentation": "iaa.method.any_generator",
    "BoostedLoss": "iaa.boosting",
    "ClassGaussians": "iaa.method.class_gaussians",
    "ClassStats": "iaa.method.gaussians",
    "Config": "iaa.config",
    "Embeddings": "iaa.retrieval.embeddings",
    "Gallery": "iaa.gallery.gallery",
    "Model": "iaa.inference",
    "Run": "iaa.runs",
    "Whitening": "iaa.method.whitening",
    "correct": "iaa.method.correction",
    "correction_weight": "iaa.method.correction",
    "cov_distance": "iaa.method.gaussians",
    "estimate": "iaa.method.gaussians",
    "evaluate": "iaa.retrieval.evaluation",
    "global_variance": "iaa.method.correction",
    "load": "iaa.inference",
    "mean_distance": "iaa.method.gaussians",
    "report": "iaa.report",
    "score": "iaa.retrieval.metrics",
    "spearman": "iaa.analysis.spearman",
    "synthesize": "iaa.method.synthesis",
    "train": "iaa.train",
}
"""Public names and their modules, loaded on first use: the command line answers --help without torch."""

__all__ = [
    "IAA",
    "Augmentation",
    "BoostedLoss",
    "ClassGaussians",
    "ClassStats",
    "Config",
    "Embeddings",
    "Gallery",
    "Model",
    "Run",
    "Whitening",
    "correct",
    "correction_weight",
    "cov_distance",
    "estimate",
    "evaluate",
    "global_variance",
    "load",
    "losses",
    "mean_distance",
    "report",
    "score",
    "spearman",
    "synthesize",
    "train",
]


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name == "losses":
        return importlib.import_module("iaa.losses")
    raise AttributeError(f"module 'iaa' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY, "losses"])
