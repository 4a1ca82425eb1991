"""The parts of a page: sections of paragraphs, tables, figures, strips of images and an atlas."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from iaa.report.figure_style import Figure


@dataclass(frozen=True)
class TableCell:
    """A table's cell: its text, smaller text below it, and whether it stands out."""

    text: str
    detail: str = ""
    strong: bool = False
    worse: bool = False
    """Whether the number is lower than before training."""


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first cell of a row names it."""

    kind: ClassVar[str] = "table"
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; ``level`` marks a verdict (good, doubtful, bad) in the margin."""

    kind: ClassVar[str] = "paragraph"
    text: str
    points: tuple[str, ...] = ()
    level: str = ""


@dataclass(frozen=True)
class Figures:
    """Figures side by side where there is room."""

    kind: ClassVar[str] = "figures"
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class FactTable:
    """Names and values, such as a configuration; ``more`` is folded away."""

    kind: ClassVar[str] = "facts"
    title: str
    rows: tuple[tuple[str, str], ...]
    more: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class StripTile:
    """One image: a data URI or None, its name, and a frame: query, right, wrong or none."""

    uri: str | None
    name: str
    frame: str = ""
    note: str = ""

    @property
    def alt(self) -> str:
        """The alternative text."""
        return ", ".join(part for part in (self.frame, self.name, self.note) if part)


@dataclass(frozen=True)
class Strip:
    """A query and the images retrieved for it, a row for each run; or a sample and its synthetics."""

    query: StripTile
    rows: tuple[tuple[str, tuple[StripTile, ...]], ...]
    """The name of a row (empty if there is only one) and its tiles."""


@dataclass(frozen=True)
class Strips:
    """Strips under a heading; ``small`` ones show more images at a smaller size."""

    kind: ClassVar[str] = "strips"
    title: str
    caption: str
    strips: tuple[Strip, ...]
    small: bool = False


@dataclass(frozen=True)
class AtlasBlock:
    """All classes of a run as a table that can be sorted and searched."""

    kind: ClassVar[str] = "atlas"
    title: str
    data: dict[str, Any]
    """Columns and rows, as the page's script reads them."""


Block = Table | Paragraph | Figures | FactTable | Strips | AtlasBlock


@dataclass(frozen=True)
class Section:
    """A part of the page, reachable by its id."""

    id: str
    title: str
    lead: str = ""
    blocks: list[Block] = field(default_factory=list)


@dataclass(frozen=True)
class Headline:
    """A large number at the top of the page."""

    label: str
    value: str
    detail: str
    worse: bool = False
    """Whether it is lower than before training."""


@dataclass(frozen=True)
class Page:
    """The whole page, and what it could not show, each with the reason."""

    title: str
    kicker: str
    """The small line above the title."""
    subtitle: str
    headline: tuple[Headline, ...]
    warnings: tuple[str, ...]
    """What a reader must know first, such as training that made search worse."""
    runs: tuple[str, ...]
    sections: list[Section]
    left_out: tuple[tuple[str, str], ...]
    made: str
    """When and by what."""
