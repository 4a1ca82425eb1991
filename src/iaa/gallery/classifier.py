"""Classifies queries by a gallery's classes: the likeliest ones, or none of them by a learned threshold."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from iaa.gallery.gallery import Gallery
from iaa.retrieval.classify import How, Identifier
from iaa.retrieval.open_set import Threshold, calibrate, draw_shots

MAX_CLASSES, MAX_ROWS = 1000, 50
"""Classes of a gallery that a threshold is learned from at most, and images of each."""


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
    """A classifier by a gallery; ``own``, that of the run's own images, lends covariance.

    The threshold is learned in the gallery as it is, from its classes held out in turns: those that were not
    trained on if there are enough, because classes that were lie apart more clearly than new ones will. A
    gallery of too few classes, or of single images, learns from the run's own classes cut to its sizes.
    """
    reference = None
    if own is not None and own.name != gallery.name:
        reference = _without_classes_of(own, gallery)
    identifier = Identifier(gallery.data.z, gallery.data.labels, how=how, reference=reference)
    threshold, learned_from = _learn(gallery, own, how, reference)
    return GalleryClassifier(gallery, identifier, threshold, learned_from)


def _learn(
    gallery: Gallery, own: Gallery | None, how: How, reference: tuple[Tensor, Tensor] | None
) -> tuple[Threshold | None, str]:
    """The threshold, and which classes it was learned from or why there is none."""
    trained = _trained_classes(gallery if own is None else own)
    shots = int(gallery.rows.labels.unique(return_counts=True)[1].median()) if len(gallery) else 1
    sources: list[tuple[Gallery, int | None, str]] = [(gallery, None, "of the gallery")]
    if own is not None and own.name != gallery.name:
        sources.append((own, shots, f"of the run, cut to {shots} images each,"))
    reason = ""
    for source, size, whose in sources:
        rows = _sample(source)
        labels = source.rows.labels[rows]
        names = {label: source.class_name(label) for label in labels.unique().tolist()}
        new = torch.tensor([names[label] not in trained for label in labels.tolist()], dtype=torch.bool)
        for asks, which in ((new, "that were not trained on "), (torch.ones_like(new), "")):
            if which and bool(asks.all()):
                continue
            lenders = reference if source is gallery else None
            try:
                threshold = calibrate(
                    source.vectors(rows), labels, asks=asks, shots=size, reference=lenders, how=how
                )
            except ValueError as error:  # too few classes, none of two images, or nothing tells them apart
                reason = reason or str(error)
                continue
            note = "" if which or not trained.intersection(names.values()) else ", trained on ones among them"
            return threshold, f"{threshold.classes:,} classes {whose} {which}held out in turns{note}"
    return None, reason


def _trained_classes(source: Gallery) -> set[str]:
    """Names of the classes that the network was trained on."""
    rows = source.rows
    labels = {int(label) for label, split in zip(rows.labels, rows.split, strict=True) if split == "train"}
    return {source.class_name(label) for label in labels}


def _sample(source: Gallery) -> Tensor:
    """All rows; of very many classes some, and of very large classes not all images."""
    rows = torch.arange(len(source))
    generator = torch.Generator().manual_seed(0)
    labels = source.rows.labels
    classes = labels.unique()
    if len(classes) > MAX_CLASSES:
        chosen = classes[torch.randperm(len(classes), generator=generator)[:MAX_CLASSES]]
        rows = rows[torch.isin(labels, chosen)]
    return rows[draw_shots(labels[rows], MAX_ROWS, generator)] if len(rows) else rows


def _without_classes_of(own: Gallery, gallery: Gallery) -> tuple[Tensor, Tensor] | None:
    """Classes of the run that the gallery does not have itself."""
    shared = set(gallery.classes)
    parts = [rows for name, rows in own.classes.items() if name not in shared]
    if not parts:
        return None
    rows = torch.cat(parts)
    return own.vectors(rows), own.rows.labels[rows]
