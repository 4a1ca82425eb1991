"""The gallery as the API shows it: its classes, how each varies, and its images, reduced."""

import functools
import hashlib
import io
import os
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from iaa.data.image_io import UnreadableImage, read
from iaa.data.image_ref import ImageRef
from iaa.files import NO_FILE, Stamp, file_stamp
from iaa.gallery.gallery import Gallery
from iaa.serve import schemas
from iaa.serve.api_errors import ApiError
from iaa.serve.background import BackgroundAnalysis

SIMILAR_CLASSES = 5
EXAMPLES = 60
"""Images of a class that are shown."""
SIDES = (160, 320, 640, 1280)
"""Sizes in which images of the gallery are sent."""
CACHED = 1024
"""Reduced images that are kept in memory."""


class GalleryView:
    """A gallery that does not change while the server runs, and what is computed from it once."""

    def __init__(self, gallery: Gallery) -> None:
        self.gallery, self.images = gallery, GalleryImages(gallery)
        self.version = gallery.version
        """Part of the URL of every image, so that a browser never shows an image of another gallery."""
        self._root = _common_folder(gallery.ids)
        self._names = sorted(gallery.classes, key=str.casefold)
        self._position = {name: position for position, name in enumerate(gallery.classes)}

    def check_row(self, row: int) -> int:
        """The row, or 404 if the gallery has no such row."""
        if not 0 <= row < len(self.gallery):
            raise ApiError(404, f"the gallery has no image {row}: ids go from 0 to {len(self.gallery) - 1}")
        return row

    def rows(self, label: str | None) -> Tensor | None:
        """The rows of a class; None for all rows."""
        if label is None:
            return None
        if label not in self.gallery.classes:
            raise ApiError(404, f"the gallery has no class {label[:100]!r}")
        return self.gallery.classes[label]

    def image_version(self, row: int) -> str | None:
        """Version of the gallery and of the image's file; None if the file is missing."""
        version = self.images.version(row)
        return None if version is None else f"{self.version}-{version}"

    def image(self, row: int) -> schemas.GalleryImage:
        """An image of the gallery as the API describes it."""
        name, version = self.gallery.ids[row], self.image_version(row)
        return schemas.GalleryImage(
            id=row,
            label=self.gallery.label(row),
            name=name.removeprefix(self._root),
            image=None if version is None else f"/api/images/{row}?v={version}",
        )

    def hit(self, row: int, similarity: float) -> schemas.SearchHit:
        """An image with its similarity to the query."""
        return schemas.SearchHit(**dict(self.image(row)), similarity=round(similarity, 6))

    def sample(self, label: str | None, limit: int) -> schemas.ImageList:
        """The first images of a class, or one image each of classes spread over the whole gallery."""
        rows = self.rows(label)
        if rows is not None:
            return schemas.ImageList(
                results=[self.image(row) for row in rows[:limit].tolist()], total=len(rows)
            )
        count = len(self._names)
        positions = torch.linspace(0, count - 1, min(limit, count)).round().long().tolist()
        first_rows = [int(self.gallery.classes[self._names[position]][0]) for position in positions]
        return schemas.ImageList(results=[self.image(row) for row in first_rows], total=len(self.gallery))

    def find_classes(self, text: str, limit: int) -> schemas.ClassList:
        """Classes whose name contains a text; those that begin with it come first."""
        wanted = text.casefold()
        names = [name for name in self._names if wanted in name.casefold()]
        names.sort(key=lambda name: not name.casefold().startswith(wanted))
        entries = [
            schemas.ClassSize(label=name, images=len(self.gallery.classes[name])) for name in names[:limit]
        ]
        return schemas.ClassList(classes=entries, total=len(names))

    def describe_class(self, label: str, analysis: BackgroundAnalysis) -> schemas.ClassDescription:
        """Size, variation, similar classes and images of a class."""
        rows = self.rows(label)
        assert rows is not None
        position = self._position[label]
        typicality = self._unit(rows) @ self._centres[position]
        order = typicality.argsort(descending=True, stable=True)
        if len(order) > EXAMPLES:  # both ends, and evenly spaced ones between them
            order = order[torch.linspace(0, len(order) - 1, EXAMPLES).round().long()]
        similarity = self._centres @ self._centres[position]
        similarity[position] = -2
        nearest = similarity.topk(min(SIMILAR_CLASSES, len(similarity) - 1))
        names = list(self.gallery.classes)
        return schemas.ClassDescription(
            label=label,
            images=len(rows),
            **_variation(analysis, label),
            similar=[
                schemas.SimilarClass(label=names[index], similarity=round(value, 4))
                for index, value in zip(nearest.indices.tolist(), nearest.values.tolist(), strict=True)
            ],
            examples=[self.hit(int(rows[index]), float(typicality[index])) for index in order.tolist()],
        )

    def _unit(self, rows: Tensor) -> Float[Tensor, "n d"]:
        return normalize(self.gallery.vectors(rows).float(), dim=1)

    @functools.cached_property
    def _class_positions(self) -> Tensor:
        """The position of each row's class."""
        positions = torch.empty(len(self.gallery), dtype=torch.int64)
        for position, rows in enumerate(self.gallery.classes.values()):
            positions[rows] = position
        return positions

    @functools.cached_property
    def _centres(self) -> Float[Tensor, "c d"]:
        """The mean direction of every class."""
        sums = torch.zeros(len(self._names), self.gallery.dim)
        for rows in torch.arange(len(self.gallery)).split(65536):
            sums.index_add_(0, self._class_positions[rows], self._unit(rows))
        return normalize(sums, dim=1)


def _variation(analysis: BackgroundAnalysis, label: str) -> dict[str, Any]:
    """The results of the analysis for a class, once they are there."""
    row = analysis.classes.get(label)
    if row is None:
        return {}
    varies = row.count > 1 and analysis.mean_variance > 0
    return {
        "spread": row.total_variance / analysis.mean_variance if varies else None,
        "directions": row.effective_rank,
        "borrowed": row.alpha,
        "lenders": [schemas.ClassLender(label=lender.name, share=lender.share) for lender in row.lenders],
    }


def _common_folder(ids: list[str]) -> str:
    """The folder that all paths share; clients need not know the folders of this machine."""
    folders = {os.path.dirname(name) for name in ids if os.path.isabs(name)}
    if not folders or not os.path.isabs(ids[0]):
        return ""
    return os.path.commonpath(folders).rstrip(os.sep) + os.sep


class GalleryImages:
    """Reduced images by row; the newest ``CACHED`` are kept."""

    def __init__(self, gallery: Gallery) -> None:
        self._gallery = gallery
        self._cached = functools.lru_cache(CACHED)(self._read)

    def version(self, row: int) -> str | None:
        """Changes when the file of an image changes; None if the file is missing."""
        reference = self._gallery.image(row)
        stamp = NO_FILE if reference is None else file_stamp(reference.path)
        return None if stamp == NO_FILE else hashlib.sha256(repr(stamp).encode()).hexdigest()[:8]

    def get(self, row: int, side: int) -> tuple[bytes, str]:
        """An image no larger than ``side``, in one of a few sizes, and its media type."""
        side = max((size for size in SIDES if size <= side), default=SIDES[0])
        reference = self._gallery.image(row)
        stamp = NO_FILE if reference is None else file_stamp(reference.path)
        if stamp == NO_FILE:
            raise ApiError(404, f"the file of image {row} is missing")
        try:
            return self._cached(row, side, stamp)
        except UnreadableImage as error:
            raise ApiError(404, f"image {row} of the gallery cannot be read: {error.reason}") from error

    def _read(self, row: int, side: int, stamp: Stamp) -> tuple[bytes, str]:
        reference = self._gallery.image(row)
        if reference is None:
            raise ApiError(404, f"the file of image {row} is missing")
        return reduce_image(reference, side)


def reduce_image(reference: ImageRef, side: int) -> tuple[bytes, str]:
    """An image of the gallery at most ``side`` pixels long, and its media type.

    Only pixels are sent: nothing else that the file may hold (positions, thumbnails, scripts).
    """
    image = read(reference.path, at_least=side, box=reference.box)
    image.thumbnail((side, side))
    is_small = max(image.size) <= SIDES[0]  # icons: not worth the loss
    out = io.BytesIO()
    if is_small:
        image.save(out, "PNG")
    else:
        image.save(out, "JPEG", quality=85)
    return out.getvalue(), "image/png" if is_small else "image/jpeg"
