"""What a gallery is made of: its sources, less what was taken out."""

import difflib
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from iaa.errors import unknown
from iaa.search.listing import KINDS, Listing, distinct, list_source, own_pictures, picture
from iaa.search.model import Model

OWN = "own"
"""The run's own pictures as a source."""


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
    def from_json(cls, given: dict[str, Any]) -> "Plan":
        """The inverse of ``as_json``."""
        return cls(**{name: tuple(values) for name, values in given.items()})

    def as_json(self) -> dict[str, Any]:
        """For the header of the gallery's file."""
        return asdict(self)

    def listing(self, model: Model) -> Listing:
        """What belongs into the gallery now."""
        found = distinct(_list(source, model) for source in self.sources)
        classes, paths = set(self.removed_classes), set(self.removed_paths)
        if not classes and not paths:
            return found
        named = enumerate(zip(found.ids, found.classes, strict=True))
        return found.take(row for row, (n, c) in named if c not in classes and picture(n).path not in paths)

    def changed(self, model: Model, add: Iterable[str], remove: Iterable[str]) -> "Plan":
        """With more sources, and without some classes, paths or added folders."""
        plan = self
        for place in add:
            plan = plan._with(place)
        for what in remove:
            plan = plan._without(what, model)
        return plan

    def _with(self, place: str) -> "Plan":
        path = Path(place).expanduser()
        source = absolute(place if ":" in place else f"{'folder' if path.is_dir() else 'picture'}:{place}")
        found = list_source(source)  # an error names the place before anything is changed
        paths = {picture(name).path for name in found.ids}
        return Plan(
            (*(one for one in self.sources if one != source), source),
            tuple(name for name in self.removed_classes if name not in set(found.classes)),
            tuple(path for path in self.removed_paths if path not in paths),
        )

    def _without(self, what: str, model: Model) -> "Plan":
        listing = self.listing(model)
        if what in listing.classes:
            return replace(self, removed_classes=(*self.removed_classes, what))
        path = os.path.abspath(Path(what).expanduser())
        if f"folder:{path}" in self.sources[1:]:
            return replace(self, sources=tuple(one for one in self.sources if one != f"folder:{path}"))
        paths = {picture(name).path for name in listing.ids}
        for one in (path, what):
            if one in paths:
                return replace(self, removed_paths=(*self.removed_paths, one))
        near = difflib.get_close_matches(what, set(listing.classes), n=1, cutoff=0.4)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"the gallery has no class, no picture and no added folder {what!r}{hint}")


def absolute(spec: str) -> str:
    """``folder:DIR`` and the like with a path that holds wherever the program is started."""
    kind, colon, place = spec.partition(":")
    if not colon or kind not in ("folder", "table", "picture"):
        raise unknown("the gallery", spec, KINDS)
    return f"{kind}:{os.path.abspath(Path(place).expanduser())}"


def gallery_file(model: Model, spec: str | None) -> Path:
    """Where the gallery of a spec is kept."""
    if spec is None:
        if model.config is None:
            raise ValueError(f"{model.path} is no run and has no pictures of its own: name a gallery")
        name = OWN
    else:
        source = absolute(spec)
        word = re.sub(r"[^\w.-]+", "-", Path(source.partition(":")[2]).stem)[:40]
        name = f"{source.partition(':')[0]}-{word}-{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    return model.folder / "galleries" / f"{name}.safetensors"


def _list(source: str, model: Model) -> Listing:
    if source != OWN:
        return list_source(source)
    if model.config is None:
        raise ValueError(f"{model.path} is no run and has no pictures of its own")
    return own_pictures(model.config)
