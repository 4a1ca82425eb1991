"""What a gallery is made of: its sources, less what was taken out."""

import difflib
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from iaa.errors import unknown
from iaa.gallery.gallery_items import KINDS, Listing, distinct, image, list_source, own_images
from iaa.inference import Model
from iaa.provenance import NAMELESS, is_text

OWN = "own"
"""The run's own images as a source."""
SOURCES = ("folder", "table", "image")


@dataclass(frozen=True)
class Found:
    """What the sources of a gallery hold at one moment."""

    listing: Listing
    notes: tuple[str, ...]
    """Added sources that are not there any more."""
    nameless: dict[str, str]
    """Images that no text can name, their names spelt in ASCII, and why they are left out."""


@dataclass(frozen=True)
class Plan:
    """Kept in the gallery's file, so that a gallery can be brought up to date at any time."""

    sources: tuple[str, ...]
    removed_classes: tuple[str, ...] = ()
    removed_paths: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: Model, spec: str | None) -> "Plan":
        """That of a new gallery."""
        return cls((OWN if spec is None else absolute(spec),))

    @classmethod
    def from_json(cls, given: Any) -> "Plan":
        """The inverse of ``as_json``; anything else is a ``ValueError``."""
        names = {field.name for field in fields(cls)}
        if not isinstance(given, dict) or not given.get("sources") or not names.issuperset(given):
            raise ValueError("it does not say what it is made of")
        for values in given.values():
            if not isinstance(values, list | tuple) or not all(isinstance(one, str) for one in values):
                raise ValueError("it does not say what it is made of")
        for source in given["sources"]:
            if source != OWN:
                absolute(source)
        return cls(**{name: tuple(values) for name, values in given.items()})

    def as_json(self) -> dict[str, Any]:
        """For the header of the gallery's file."""
        return asdict(self)

    def found(self, model: Model) -> Found:
        """What belongs into the gallery now; what was added and is gone since counts as nothing."""
        first, *added = self.sources
        listings, notes = [_list(first, model)], []
        for source in added:
            try:
                listings.append(list_source(source))
            except FileNotFoundError as error:
                notes.append(f"{error}: what was added from there is out of the gallery until it is back")
        found = distinct(listings)
        classes, paths = set(self.removed_classes), set(self.removed_paths)
        if classes or paths:
            rows = enumerate(zip(found.ids, found.classes, strict=True))
            found = found.take(row for row, (n, c) in rows if c not in classes and image(n).path not in paths)
        nameless = {name: ascii(name)[1:-1] for name in found.ids if not is_text(name)}
        if nameless:
            found = found.take(row for row, name in enumerate(found.ids) if name not in nameless)
        return Found(found, tuple(notes), dict.fromkeys(nameless.values(), NAMELESS))

    def changed(self, model: Model, add: Iterable[str], remove: Iterable[str]) -> "Plan":
        """With more sources, and without some classes, paths or added folders."""
        plan = self
        for place in add:
            plan = plan._with(place)
        for what in remove:
            plan = plan._without(what, model)
        return plan

    def _with(self, place: str) -> "Plan":
        source = named(place)
        found = list_source(source)  # an error names the place before anything is changed
        paths = {image(name).path for name in found.ids}
        return Plan(
            (*(one for one in self.sources if one != source), source),
            tuple(name for name in self.removed_classes if name not in set(found.classes)),
            tuple(path for path in self.removed_paths if path not in paths),
        )

    def _without(self, what: str, model: Model) -> "Plan":
        if not _place(what):
            raise ValueError(f"what is removed must be a class or a path, got {what!r}")
        path = os.path.abspath(Path(_place(what)).expanduser())
        dropped = {f"{kind}:{path}" for kind in SOURCES} & set(self.sources[1:])
        if dropped:  # not listed: it may be gone
            single = (path,) if f"image:{path}" in dropped else ()  # another source may hold it as well
            return replace(
                self,
                sources=tuple(one for one in self.sources if one not in dropped),
                removed_paths=(*self.removed_paths, *single),
            )
        listing = self.found(model).listing
        if what in listing.classes:
            return replace(self, removed_classes=(*self.removed_classes, what))
        paths = {image(name).path for name in listing.ids}
        for one in (path, what):
            if one in paths:
                return replace(self, removed_paths=(*self.removed_paths, one))
        near = difflib.get_close_matches(what, set(listing.classes), n=1, cutoff=0.4)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"the gallery has no class, no image and no added folder {what!r}{hint}")


def absolute(spec: str) -> str:
    """``folder:DIR`` and the like with a path that holds wherever the program is started."""
    kind, colon, place = spec.partition(":")
    if not colon or kind not in SOURCES:
        raise unknown("the gallery", spec, KINDS)
    if not place:
        raise ValueError(f"{spec!r} names no path: an empty one would mean the current folder")
    return f"{kind}:{os.path.abspath(Path(place).expanduser())}"


def named(place: str) -> str:
    """The source that a path given to ``add`` stands for; it may say its kind itself."""
    if not place:
        raise ValueError("what is added must be a folder or an image, got an empty name")
    if _place(place) != place:
        return absolute(place)
    return absolute(f"{'folder' if Path(place).expanduser().is_dir() else 'image'}:{place}")


def _place(given: str) -> str:
    kind, colon, place = given.partition(":")
    return place if colon and kind in SOURCES else given


def gallery_file(model: Model, spec: str | None) -> Path:
    """Where the gallery of a spec is kept."""
    if spec is None:
        if model.config is None:
            raise ValueError(f"{model.path} is no run and has no images of its own: name a gallery")
        name = OWN
    else:
        source = absolute(spec)
        word = re.sub(r"[^\w.-]+", "-", Path(source.partition(":")[2]).stem)[:40]
        name = f"{source.partition(':')[0]}-{word}-{hashlib.sha256(os.fsencode(source)).hexdigest()[:8]}"
    return model.folder / "galleries" / f"{name}.safetensors"


def _list(source: str, model: Model) -> Listing:
    if source != OWN:
        return list_source(source)
    if model.config is None:
        raise ValueError(f"{model.path} is no run and has no images of its own")
    return own_images(model.config)
