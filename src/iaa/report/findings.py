"""All that was found about one run: what sections are drawn from. Whatever is missing has a reason."""

from dataclasses import dataclass, field
from typing import Any

from iaa.analysis.atlas import Atlas
from iaa.analysis.correlation import Correlation
from iaa.analysis.cost import Cost
from iaa.analysis.covariance_spread import Variety, Weights
from iaa.analysis.decoder import Decoded
from iaa.analysis.example_queries import Answers
from iaa.analysis.mining import Mining
from iaa.analysis.pair_similarity import Similarity
from iaa.analysis.projection import Projection
from iaa.analysis.synthetics import Surroundings
from iaa.report.run_files import RunSummary
from iaa.report.thumbnails import Thumbnails
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.significance import Difference


@dataclass(frozen=True)
class Scores:
    """One test part: how many asked whom, and every metric with its intervals."""

    queries: int
    classes: int
    gallery: int | None
    """None where each is held against all others."""
    without_positive: int
    metrics: dict[str, dict[str, Any]]
    """Value and 95 % intervals over queries and over classes, as ``Evaluation.summary`` gives them."""


@dataclass
class Findings:
    """Filled analysis by analysis; None is what could not be had."""

    run: RunSummary
    data: Embeddings
    """Of the first test part: scores, queries and pairs are of these."""
    images: Thumbnails
    classes: Embeddings
    """What class statistics are taken from: those of training, where they can be had."""
    split: str = "test"
    """Whose classes these are: train, val, test or all."""
    scores: dict[str, Scores] = field(default_factory=dict)
    """By test part."""
    against_first: dict[str, dict[str, Difference]] = field(default_factory=dict)
    """By test part and metric: this run less the first one, over the same queries."""
    typical: Answers | None = None
    worst: Answers | None = None
    """Of the same queries in every run that has them."""
    class_scores: dict[str, dict[int, float]] = field(default_factory=dict)
    """By metric and label, in percent; of the classes that are described."""
    correlation: Correlation | None = None
    variety: Variety | None = None
    weights: Weights | None = None
    similarity: Similarity | None = None
    mining: Mining | None = None
    atlas: Atlas | None = None
    projection: Projection | None = None
    around: Surroundings | None = None
    decoded: Decoded | None = None
    cost: Cost | None = None
    missing: dict[str, str] = field(default_factory=dict)
    """By section, why it is not there."""

    @property
    def name(self) -> str:
        """Of the run."""
        return self.run.name

    def class_name(self, label: int) -> str:
        """Of a label; its number where it has no name."""
        for names in (self.classes.class_names, self.data.class_names):
            if names and label in names:
                return names[label]
        return str(label)
