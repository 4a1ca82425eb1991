"""Every figure: results in, a ``Drawing`` out, written to a file where a path is given."""

from iaa.report.charts import ablation, cost, losses, mining, tsne, validation
from iaa.report.distributions import correlation, similarity, variety, weights
from iaa.report.drawing import Drawing

__all__ = [
    "Drawing",
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
