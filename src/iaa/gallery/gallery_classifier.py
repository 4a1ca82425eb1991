"""The likeliest classes of a query, or none of them: by a gallery's classes and a threshold."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from iaa.gallery.gallery import Gallery
from iaa.retrieval.classify import How, Identifier
from iaa.retrieval.open_set import Threshold, calibrate, draw_shots

LEAST_CLASSES, MOST_CLASSES, MOST_ROWS = 8, 1000, 50
"""Of the classes that a threshold is learnt from, and of the images of each."""


class Candidate(NamedTuple):
    """A class and how well it fits."""

    label: str
    score: float


@dataclass(frozen=True)
class Names:
    """What classes a query may belong to, likeliest first."""

    candidates: list[Candidate]
    known: bool | None
    """Whether it belongs to any class of the gallery; None where no threshold could be learnt."""


@dataclass(frozen=True, eq=False)
class Naming:
    """Names queries by the classes of one gallery."""

    gallery: Gallery
    identifier: Identifier
    threshold: Threshold | None
    learnt_on: str
    """Which classes the threshold comes from, in words; or why there is none."""

    def names(self, query: Float[Tensor, "q d"], *, top: int = 3) -> list[Names]:
        """The likeliest classes of each query, and whether it is any of them."""
        guess = self.identifier.rank(query, top=top)
        least = None if self.threshold is None else self.threshold.score
        return [
            Names(
                [Candidate(self.gallery.class_name(n), s) for n, s in zip(labels, scores, strict=True)],
                None if least is None else scores[0] >= least,
            )
            for labels, scores in zip(guess.label.tolist(), guess.score.tolist(), strict=True)
        ]


def open_naming(gallery: Gallery, *, how: How = "gaussian", own: Gallery | None = None) -> Naming:
    """Naming by a gallery; ``own``, the gallery of the run's own images, lends covariance and threshold.

    The threshold is learnt on classes that were held out from training if there are any, else on the
    training classes, and never on test classes; on the gallery's own classes if it has no others.
    """
    reference, source = None, gallery
    if own is not None and own.file != gallery.file:
        reference, source = _without_classes_of(own, gallery), own
    identifier = Identifier(gallery.data.z, gallery.data.labels, how=how, reference=reference)
    shots = int(gallery.data.labels.unique(return_counts=True)[1].median())
    for among, split, words in (
        (source, "val", "classes held out from training"),
        (source, "train", "training classes"),
        (gallery, None, "classes of the gallery itself, held out in turns"),
    ):
        rows = _sample(among, split)
        labels = among.data.labels[rows]
        sizes = labels.unique(return_counts=True)[1]
        if len(sizes) < LEAST_CLASSES or int(sizes.max()) < 2:
            continue
        few = max(1, min(shots, int(sizes.median()) // 2))
        try:
            threshold = calibrate(among.data.z[rows], labels, shots=few, known=len(identifier), how=how)
        except ValueError:  # no draw of them left a query
            continue
        return Naming(gallery, identifier, threshold, f"{len(sizes):,} {words}")
    return Naming(gallery, identifier, None, "too few classes of two images or more to learn it from")


def _sample(source: Gallery, split: str | None) -> Tensor:
    """Rows of a split; of very many classes some, and of very large classes not all."""
    rows = source.data.where(split=split).nonzero()[:, 0]
    generator = torch.Generator().manual_seed(0)
    labels = source.data.labels[rows]
    classes = labels.unique()
    if len(classes) > MOST_CLASSES:
        chosen = classes[torch.randperm(len(classes), generator=generator)[:MOST_CLASSES]]
        rows = rows[torch.isin(labels, chosen)]
        labels = source.data.labels[rows]
    return rows[draw_shots(labels, MOST_ROWS, generator)] if len(rows) else rows


def _without_classes_of(own: Gallery, gallery: Gallery) -> tuple[Tensor, Tensor] | None:
    """Classes of the run that the gallery does not have itself."""
    there = set(gallery.classes)
    rows = [rows for name, rows in own.classes.items() if name not in there]
    if not rows:
        return None
    at = torch.cat(rows)
    return own.data.z[at], own.data.labels[at]
