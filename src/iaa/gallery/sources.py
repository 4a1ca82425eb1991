"""The sources of a gallery, and what was removed from them: kept with the gallery to update it any time."""

import difflib
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from iaa.data.image_ref import image_path
from iaa.errors import unknown
from iaa.gallery.listing import KINDS, Listing, list_source, merge, own_images
from iaa.inference import Model
from iaa.provenance import NOT_UTF8, is_text
from iaa.runs import Run

OWN = "own"
"""The run's own images as a source."""
NONE = "imported"
"""In place of a first source, if a gallery began with imported vectors."""
SOURCE_KINDS = ("folder", "table", "image")


@dataclass(frozen=True)
class Available:
    """What the sources hold now."""

    listing: Listing
    notes: tuple[str, ...]
    """Added sources that no longer exist."""
    not_utf8: dict[str, str]
    """Images whose names are not UTF-8, by their names in ASCII, and why they are left out."""


@dataclass(frozen=True)
class Sources:
    """Where a gallery's images come from, less removed classes and images."""

    sources: tuple[str, ...]
    removed_classes: tuple[str, ...] = ()
    removed_paths: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: str | None) -> "Sources":
        """Those of a new gallery; None means the run's own images."""
        return cls((OWN if spec is None else absolute(spec),))

    @classmethod
    def imported(cls) -> "Sources":
        """Those of a gallery that begins with imported vectors."""
        return cls((NONE,))

    @classmethod
    def from_json(cls, content: Any) -> "Sources":
        """The inverse of ``to_json``; anything else is a ``ValueError``."""
        names = {field.name for field in fields(cls)}
        if not isinstance(content, dict) or not content.get("sources") or not names.issuperset(content):
            raise ValueError("its sources are missing")
        for values in content.values():
            if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
                raise ValueError("its sources are missing")
        for source in content["sources"]:
            if source not in (OWN, NONE):
                absolute(source)
        return cls(**{name: tuple(values) for name, values in content.items()})

    def to_json(self) -> dict[str, Any]:
        """For the header of a gallery."""
        return asdict(self)

    def without_removals(self, listing: Listing) -> "Sources":
        """Forget that classes and paths of a listing were removed."""
        classes, paths = set(listing.classes), set(map(_path, listing.ids))
        return Sources(
            self.sources,
            tuple(name for name in self.removed_classes if name not in classes),
            tuple(path for path in self.removed_paths if path not in paths),
        )

    def available(self, model: Model, imported: Listing | None = None) -> Available:
        """The images that belong to the gallery now; added sources that no longer exist are left out.

        ``imported`` rows belong to it as well.
        """
        first, *added = self.sources
        listings, notes = [_list(first, model)], []
        for source in added:
            try:
                listings.append(list_source(source))
            except FileNotFoundError as error:
                notes.append(f"{error}: what was added from there is left out until it is back")
        listing = merge(listings if imported is None else [*listings, imported])
        classes, paths = set(self.removed_classes), set(self.removed_paths)
        if classes or paths:
            rows = enumerate(zip(listing.ids, listing.classes, strict=True))
            listing = listing.take(
                row for row, (id, name) in rows if name not in classes and _path(id) not in paths
            )
        not_utf8 = {id: ascii(id)[1:-1] for id in listing.ids if not is_text(id)}
        if not_utf8:
            listing = listing.take(row for row, id in enumerate(listing.ids) if id not in not_utf8)
        return Available(listing, tuple(notes), dict.fromkeys(not_utf8.values(), NOT_UTF8))

    def changed(
        self, model: Model, add: Iterable[str], remove: Iterable[str], imported: Listing | None = None
    ) -> "Sources":
        """With more sources, and without some classes, paths or added folders."""
        sources = self
        for path in add:
            sources = sources._with(path)
        for class_or_path in remove:
            sources = sources._without(class_or_path, model, imported)
        return sources

    def _with(self, path: str) -> "Sources":
        added = source_of(path)
        listing = list_source(added)  # raises before anything is changed
        kept = self.without_removals(listing)
        return replace(kept, sources=(*(source for source in self.sources if source != added), added))

    def _without(self, class_or_path: str, model: Model, imported: Listing | None) -> "Sources":
        location = _location(class_or_path)
        if not location:
            raise ValueError(f"what is removed must be a class or a path, got {class_or_path!r}")
        path = os.path.abspath(Path(location).expanduser())
        dropped = {f"{kind}:{path}" for kind in SOURCE_KINDS} & set(self.sources[1:])
        if dropped:  # not listed: it may not exist any more
            image = (path,) if f"image:{path}" in dropped else ()  # another source may hold it as well
            return replace(
                self,
                sources=tuple(source for source in self.sources if source not in dropped),
                removed_paths=(*self.removed_paths, *image),
            )
        listing = self.available(model, imported).listing
        if class_or_path in listing.classes:
            return replace(self, removed_classes=(*self.removed_classes, class_or_path))
        paths = set(map(_path, listing.ids))
        for spelling in (path, class_or_path):
            if spelling in paths:
                return replace(self, removed_paths=(*self.removed_paths, spelling))
        near = difflib.get_close_matches(class_or_path, set(listing.classes), n=1, cutoff=0.4)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"the gallery has no class, no image and no added folder {class_or_path!r}{hint}")


def absolute(spec: str) -> str:
    """``folder:DIR`` and the like with an absolute path."""
    kind, colon, location = spec.partition(":")
    if not colon or kind not in SOURCE_KINDS:
        if Path(spec).expanduser().is_dir():
            raise ValueError(f"{spec} is not a gallery: did you mean folder:{spec}?")
        raise unknown("the gallery", spec, KINDS)
    if not location:
        raise ValueError(f"{spec!r} names no path: an empty one would mean the current folder")
    return f"{kind}:{os.path.abspath(Path(location).expanduser())}"


def source_of(path: str) -> str:
    """The source that a path given to ``add`` stands for; the path may name its kind itself."""
    if not path:
        raise ValueError("what is added must be a folder or an image, got an empty name")
    if _location(path) != path:
        return absolute(path)
    return absolute(f"{'folder' if Path(path).expanduser().is_dir() else 'image'}:{path}")


def gallery_name(model: Model, spec: str | None) -> str:
    """A name for the gallery of a spec, the same wherever the program is started."""
    if spec is None:
        if model.config is None:
            raise ValueError(f"{model.path} is not a run and has no images of its own: name a gallery")
        return OWN + ("-flip" if model.identity.get("flip") else "")
    kind, _, location = absolute(spec).partition(":")
    stem = re.sub(r"[^\w.-]+", "-", Path(location).stem)[:40]
    return f"{kind}-{stem}-{hashlib.sha256(os.fsencode(f'{kind}:{location}')).hexdigest()[:8]}" + (
        "-flip" if model.identity.get("flip") else ""
    )


def _path(id: str) -> str:
    """What an image is removed by: its path, so that all its boxes go; of a row of vectors, its id."""
    return image_path(id) or id


def _location(text: str) -> str:
    kind, colon, location = text.partition(":")
    return location if colon and kind in SOURCE_KINDS else text


def _list(source: str, model: Model) -> Listing:
    if source == NONE:
        return Listing([], [], [])
    if source != OWN:
        return list_source(source)
    if model.config is None:
        raise ValueError(f"{model.path} is not a run and has no images of its own")
    return own_images(Run(model.path))
