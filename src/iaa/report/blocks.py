"""What a page is made of: sections of words, tables, figures, strips of images and an atlas."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from iaa.report.figure_style import Drawing


@dataclass(frozen=True)
class Cell:
    """A table's cell: what it says, smaller words below it, and whether it stands out."""

    text: str
    below: str = ""
    strong: bool = False
    title: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first cell of a row names it."""

    kind: ClassVar[str] = "table"
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Words:
    """A paragraph; ``level`` marks a verdict (good, doubtful, bad) in the margin."""

    kind: ClassVar[str] = "words"
    text: str
    points: tuple[str, ...] = ()
    level: str = ""


@dataclass(frozen=True)
class Figures:
    """Figures side by side where there is room."""

    kind: ClassVar[str] = "figures"
    drawings: tuple[Drawing, ...]


@dataclass(frozen=True)
class Facts:
    """Names and values, such as a configuration; ``more`` is folded away."""

    kind: ClassVar[str] = "facts"
    title: str
    rows: tuple[tuple[str, str], ...]
    more: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Tile:
    """One image: as a data URI or None, its name, and a frame: query, right, wrong or none."""

    uri: str | None
    name: str
    frame: str = ""
    note: str = ""

    @property
    def alt(self) -> str:
        """For those who do not see it."""
        return ", ".join(part for part in (self.frame, self.name, self.note) if part)


@dataclass(frozen=True)
class Strip:
    """A query and what it was answered, a row for each run; or a sample and what was made of it."""

    query: Tile
    rows: tuple[tuple[str, tuple[Tile, ...]], ...]
    """The name of a row (empty if there is one alone) and its tiles."""


@dataclass(frozen=True)
class Strips:
    """Strips under a heading; ``small`` ones have more images of less size."""

    kind: ClassVar[str] = "strips"
    title: str
    words: str
    strips: tuple[Strip, ...]
    small: bool = False


@dataclass(frozen=True)
class Atlas:
    """All classes of a run as a table that can be sorted and searched."""

    kind: ClassVar[str] = "atlas"
    title: str
    data: dict[str, Any]
    """Columns and rows, as the page's script reads them."""


Block = Table | Words | Figures | Facts | Strips | Atlas


@dataclass(frozen=True)
class Section:
    """A part of the page, reachable by its id."""

    id: str
    title: str
    lead: str = ""
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Page:
    """The whole, and what it could not show, each with a word why."""

    title: str
    over: str
    subtitle: str
    headline: tuple[tuple[str, str, str], ...]
    """Large numbers: what, value, smaller words."""
    runs: tuple[str, ...]
    sections: list[Section]
    left_out: tuple[tuple[str, str], ...]
    made: str
    """When and by what."""
