"""The gallery as the page shows it: names, classes, and how each class varies."""

import functools
import os
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from iaa.gallery.gallery import Gallery
from iaa.serve.background import Insights
from iaa.serve.middleware import Refused
from iaa.serve.schemas import ClassAbout, ClassEntry, Classes, Hit, Lender, Listed, NearClass, Shown

NEAR = 5
"""Other classes that are named."""
EXAMPLES = 60
"""Images of a class that are shown."""


class Catalogue:
    """A gallery that does not change, and what is worth computing once."""

    def __init__(self, gallery: Gallery) -> None:
        self.gallery = gallery
        self.version = gallery.version
        """Part of the address of every image, so that a browser never shows one of another gallery."""
        self._base = _shared_folder(gallery.ids)
        self._names = sorted(gallery.classes, key=str.casefold)
        self._place = {name: place for place, name in enumerate(gallery.classes)}

    def row(self, number: int) -> int:
        """A row of the gallery, or the refusal of a number that is none."""
        if not 0 <= number < len(self.gallery):
            raise Refused(404, f"the gallery has no image {number}: ids go from 0 to {len(self.gallery) - 1}")
        return number

    def rows(self, label: str | None) -> Tensor | None:
        """The rows of a class; None for all."""
        if label is None:
            return None
        if label not in self.gallery.classes:
            raise Refused(404, f"the gallery has no class {label[:100]!r}")
        return self.gallery.classes[label]

    def shown(self, row: int) -> Shown:
        """An image as the API names it."""
        name, here = self.gallery.ids[row], self.gallery.image(row) is not None
        return Shown(
            id=row,
            label=self.gallery.label(row),
            name=name[len(self._base) :] if name.startswith(self._base) else name,
            image=f"/api/images/{row}?v={self.version}" if here else None,
        )

    def hit(self, row: int, similarity: float) -> Hit:
        """An image that was found."""
        return Hit(**dict(self.shown(row)), similarity=round(similarity, 6))

    def some(self, label: str | None, limit: int) -> Listed:
        """The first images of a class, or one each of classes spread over the whole gallery."""
        rows = self.rows(label)
        if rows is not None:
            return Listed(results=[self.shown(row) for row in rows[:limit].tolist()], total=len(rows))
        count = len(self._names)
        places = torch.linspace(0, count - 1, min(limit, count)).round().long().tolist()
        firsts = [int(self.gallery.classes[self._names[place]][0]) for place in places]
        return Listed(results=[self.shown(row) for row in firsts], total=len(self.gallery))

    def find(self, text: str, limit: int) -> Classes:
        """Classes whose name contains a text; those that begin with it come first."""
        wanted = text.casefold()
        found = [name for name in self._names if wanted in name.casefold()]
        found.sort(key=lambda name: not name.casefold().startswith(wanted))
        entries = [ClassEntry(label=name, images=len(self.gallery.classes[name])) for name in found[:limit]]
        return Classes(classes=entries, total=len(found))

    def about(self, label: str, insights: Insights) -> ClassAbout:
        """Size, spread, neighbours and images of a class."""
        rows = self.rows(label)
        assert rows is not None
        place = self._place[label]
        typical = self._unit(rows) @ self._centres[place]
        order = typical.argsort(descending=True, stable=True)
        if len(order) > EXAMPLES:  # both ends and an even choice between them
            order = order[torch.linspace(0, len(order) - 1, EXAMPLES).round().long()]
        likeness = self._centres @ self._centres[place]
        likeness[place] = -2
        near = likeness.topk(min(NEAR, len(likeness) - 1))
        names = list(self.gallery.classes)
        return ClassAbout(
            label=label,
            images=len(rows),
            **_variation(insights, label),
            similar=[
                NearClass(label=names[at], similarity=round(value, 4))
                for at, value in zip(near.indices.tolist(), near.values.tolist(), strict=True)
            ],
            examples=[self.hit(int(rows[at]), float(typical[at])) for at in order.tolist()],
        )

    def _unit(self, rows: Tensor) -> Float[Tensor, "n d"]:
        return normalize(self.gallery.vectors(rows).float(), dim=1)

    @functools.cached_property
    def _labels(self) -> Tensor:
        """The place of each row's class."""
        places = torch.empty(len(self.gallery), dtype=torch.int64)
        for place, rows in enumerate(self.gallery.classes.values()):
            places[rows] = place
        return places

    @functools.cached_property
    def _centres(self) -> Float[Tensor, "c d"]:
        """The mean direction of every class."""
        sums = torch.zeros(len(self._names), self.gallery.dim)
        for rows in torch.arange(len(self.gallery)).split(65536):
            sums.index_add_(0, self._labels[rows], self._unit(rows))
        return normalize(sums, dim=1)


def _variation(insights: Insights, label: str) -> dict[str, Any]:
    """The atlas's numbers of a class, once they are there."""
    row = insights.classes.get(label)
    if row is None:
        return {}
    varies = row.count > 1 and insights.average > 0
    return {
        "spread": row.total_variance / insights.average if varies else None,
        "directions": row.effective_rank,
        "borrowed": row.alpha,
        "lenders": [Lender(label=one.name, share=one.share) for one in row.lenders],
    }


def _shared_folder(ids: list[str]) -> str:
    """What all paths begin with; names alone need no folders of this machine."""
    folders = {os.path.dirname(name) for name in ids if os.path.isabs(name)}
    if len(folders) == 0 or not all(os.path.isabs(name) for name in ids[:1]):
        return ""
    shared = os.path.commonpath(folders)
    return shared.rstrip(os.sep) + os.sep
