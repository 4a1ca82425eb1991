"""Deep metric learning with intra-class adaptive augmentation and neighbour correction."""

import importlib
from typing import TYPE_CHECKING

from iaa.method.augment import IAA
from iaa.method.augmentation import Augmentation
from iaa.method.correction import correct, correction_weight, global_variance
from iaa.method.gaussians import ClassStats, cov_distance, estimate, mean_distance
from iaa.method.synthesis import synthesize
from iaa.method.whitening import Whitening

if TYPE_CHECKING:
    from iaa import losses
    from iaa.analysis.spearman import spearman
    from iaa.boosting import BoostedLoss
    from iaa.config import Config
    from iaa.gallery.gallery import Gallery
    from iaa.inference import Model, load
    from iaa.report import report
    from iaa.retrieval.embeddings import Embeddings
    from iaa.retrieval.evaluation import evaluate
    from iaa.retrieval.metrics import score
    from iaa.runs import Run
    from iaa.train import train

__version__ = "0.1.0"

_LAZY: dict[str, str] = {
    "BoostedLoss": "iaa.boosting",
    "Config": "iaa.config",
    "Embeddings": "iaa.retrieval.embeddings",
    "Gallery": "iaa.gallery.gallery",
    "Model": "iaa.inference",
    "Run": "iaa.runs",
    "evaluate": "iaa.retrieval.evaluation",
    "load": "iaa.inference",
    "report": "iaa.report",
    "score": "iaa.retrieval.metrics",
    "spearman": "iaa.analysis.spearman",
    "train": "iaa.train",
}
"""Public names whose modules are loaded on first use, so that ``import iaa`` stays light."""

__all__ = [
    "IAA",
    "Augmentation",
    "BoostedLoss",
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
