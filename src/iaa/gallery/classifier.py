"""Classifies queries by a gallery's classes: the likeliest ones, or none of them by a learned threshold."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from iaa.gallery.gallery import Gallery
from iaa.retrieval.classify import How, Identifier
from iaa.retrieval.open_set import Threshold, calibrate, draw_shots

MIN_CLASSES, MAX_CLASSES, MAX_ROWS = 8, 1000, 50
"""Classes that a threshold is learned from, and images of each."""


class Candidate(NamedTuple):
    """A class and how well it fits."""

    label: str
    score: float


@dataclass(frozen=True)
class Classification:
    """The classes a query may belong to, likeliest first."""

    candidates: list[Candidate]
    known: bool | None
    """Whether it belongs to any class of the gallery; None if no threshold could be learned."""


@dataclass(frozen=True, eq=False)
class GalleryClassifier:
    """Classifies queries by the classes of one gallery."""

    gallery: Gallery
    identifier: Identifier
    threshold: Threshold | None
    learned_from: str
    """Which classes the threshold was learned from, or why there is none."""

    def classify(self, query: Float[Tensor, "q d"], *, top: int = 3) -> list[Classification]:
        """The likeliest classes of each query, and whether it belongs to any class."""
        guess = self.identifier.rank(query, top=top)
        threshold = None if self.threshold is None else self.threshold.score
        return [
            Classification(
                [Candidate(self.gallery.class_name(n), s) for n, s in zip(labels, scores, strict=True)],
                None if threshold is None else scores[0] >= threshold,
            )
            for labels, scores in zip(guess.label.tolist(), guess.score.tolist(), strict=True)
        ]


def open_classifier(
    gallery: Gallery, *, how: How = "gaussian", own: Gallery | None = None
) -> GalleryClassifier:
    """A classifier by a gallery; ``own``, that of the run's own images, lends covariance and threshold.

    The threshold is learned from classes that were held out from training if there are any, else from the
    training classes, and never from test classes; from the gallery's own classes if it has no others.
    """
    reference, source = None, gallery
    if own is not None and own.name != gallery.name:
        reference, source = _without_classes_of(own, gallery), own
    identifier = Identifier(gallery.data.z, gallery.data.labels, how=how, reference=reference)
    shots = int(gallery.data.labels.unique(return_counts=True)[1].median())
    for candidate, split, description in (
        (source, "val", "classes held out from training"),
        (source, "train", "training classes"),
        (gallery, None, "classes of the gallery itself, held out in turns"),
    ):
        rows = _sample(candidate, split)
        labels = candidate.rows.labels[rows]
        sizes = labels.unique(return_counts=True)[1]
        if len(sizes) < MIN_CLASSES or int(sizes.max()) < 2:
            continue
        few = max(1, min(shots, int(sizes.median()) // 2))
        try:
            threshold = calibrate(candidate.vectors(rows), labels, shots=few, known=len(identifier), how=how)
        except ValueError:  # no draw left a query
            continue
        return GalleryClassifier(gallery, identifier, threshold, f"{len(sizes):,} {description}")
    return GalleryClassifier(
        gallery, identifier, None, "too few classes of two images or more to learn it from"
    )


def _sample(source: Gallery, split: str | None) -> Tensor:
    """Rows of a split: of very many classes some, and of very large classes not all images."""
    rows = torch.tensor([split in (None, name) for name in source.rows.split]).nonzero()[:, 0]
    generator = torch.Generator().manual_seed(0)
    labels = source.rows.labels[rows]
    classes = labels.unique()
    if len(classes) > MAX_CLASSES:
        chosen = classes[torch.randperm(len(classes), generator=generator)[:MAX_CLASSES]]
        rows = rows[torch.isin(labels, chosen)]
        labels = source.rows.labels[rows]
    return rows[draw_shots(labels, MAX_ROWS, generator)] if len(rows) else rows


def _without_classes_of(own: Gallery, gallery: Gallery) -> tuple[Tensor, Tensor] | None:
    """Classes of the run that the gallery does not have itself."""
    shared = set(gallery.classes)
    parts = [rows for name, rows in own.classes.items() if name not in shared]
    if not parts:
        return None
    rows = torch.cat(parts)
    return own.vectors(rows), own.rows.labels[rows]
