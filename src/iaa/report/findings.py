"""A run as the report reads it, and everything collected about it; what is missing has a reason."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iaa.analysis.atlas import Atlas
from iaa.analysis.correlation import Correlation
from iaa.analysis.cost import Cost
from iaa.analysis.covariance_spread import Variety, Weights
from iaa.analysis.decoder import Decoded
from iaa.analysis.example_queries import Retrieved
from iaa.analysis.pair_similarity import Similarity
from iaa.analysis.regression import best_untrained, untrained_rows
from iaa.analysis.synthetics import Projection, SyntheticNeighbors
from iaa.analysis.training_log import LogColumns, Mining, log_columns
from iaa.config import Config
from iaa.report.thumbnails import Thumbnails
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.significance import Difference
from iaa.runs import CONFIG, ENVIRONMENT, LOG, METRICS, Run


@dataclass(frozen=True)
class RunSummary:
    """A training run, or an embeddings file alone; what is missing is None or empty."""

    name: str
    path: Path
    tests: dict[str, Path]
    """Embeddings files by test part, ``test`` unless there are several."""
    config: Config | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] | None = None
    log: LogColumns | None = None
    opened: Run | None = None
    """The run itself, with the data it has listed already."""


@dataclass(frozen=True)
class Scores:
    """One test part: the numbers of queries, classes and gallery rows, and every metric with intervals."""

    queries: int
    classes: int
    gallery: int | None
    """None if each query is compared with all others."""
    without_positive: int
    metrics: dict[str, dict[str, Any]]
    """Value and 95 % intervals over queries and over classes, as ``Evaluation.summary`` gives them."""

    @property
    def values(self) -> dict[str, float]:
        """Percent by metric, without the intervals."""
        return {metric: score["value"] for metric, score in self.metrics.items()}


@dataclass
class Findings:
    """Filled analysis by analysis; None where an analysis was not possible."""

    run: RunSummary
    data: Embeddings
    """The first test part, which queries and pairs are taken from."""
    images: Thumbnails
    classes: Embeddings
    """What class statistics are estimated from: the training classes, where they can be embedded."""
    split: str = "test"
    """Which classes these are: train, val, test or all."""
    scores: dict[str, Scores] = field(default_factory=dict)
    """By test part."""
    against_first: dict[str, dict[str, Difference]] = field(default_factory=dict)
    """By test part and metric: this run minus the first one, over the same queries."""
    typical: Retrieved | None = None
    worst: Retrieved | None = None
    """The same queries in every run that has them."""
    class_scores: dict[str, dict[int, float]] = field(default_factory=dict)
    """By metric and label, in percent, of the classes that are described."""
    correlation: Correlation | None = None
    variety: Variety | None = None
    weights: Weights | None = None
    similarity: Similarity | None = None
    mining: Mining | None = None
    atlas: Atlas | None = None
    projection: Projection | None = None
    around: SyntheticNeighbors | None = None
    decoded: Decoded | None = None
    cost: Cost | None = None
    missing: dict[str, str] = field(default_factory=dict)
    """By section, why it is missing."""

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.run.name

    def untrained(self, part: str) -> dict[str, Mapping[str, float]]:
        """Scores of a test part before training, by row of the run's own table."""
        return untrained_rows(self.run.metrics.get("table", {}), part)

    def reference(self, part: str) -> Mapping[str, float]:
        """The best scores before training; empty if none were measured."""
        rows = self.untrained(part)
        return rows.get(best_untrained(rows) or "", {})

    def class_name(self, label: int) -> str:
        """The name of a class; its number if it has no name."""
        described = label in (self.classes.class_names or {})
        return (self.classes if described else self.data).class_name(label)


def read_run(path: str | os.PathLike[str]) -> RunSummary:
    """Read a run directory or an embeddings file."""
    run = Run(path)
    if run.path.is_file():
        return RunSummary(run.path.stem, run.path, {"test": run.path})
    if not run.path.is_dir():
        raise FileNotFoundError(f"no run and no embeddings file at {run.path}")
    if not run.embeddings_files:
        run.embeddings()  # says what is missing
    return RunSummary(
        run.name,
        run.path,
        run.embeddings_files,
        run.config if (run / CONFIG).is_file() else None,
        run.metrics if (run / METRICS).is_file() else {},
        run.environment if (run / ENVIRONMENT).is_file() else None,
        log_columns(run.name, run.log) if (run / LOG).is_file() else None,
        run,
    )
