"""Every figure: a result in, a ``Figure`` out, written to a file if a path is given."""

from iaa.report.class_figures import correlation, similarity, variety, weights
from iaa.report.figure_style import Figure
from iaa.report.training_figures import ablation, cost, losses, mining, tsne, validation

__all__ = [
    "Figure",
    "ablation",
    "correlation",
    "cost",
    "losses",
    "mining",
    "similarity",
    "tsne",
    "validation",
    "variety",
    "weights",
]
