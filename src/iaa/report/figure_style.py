"""The style of every figure, and its output: a file, or SVG that follows the page's light and dark theme."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from iaa.errors import need, unknown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

INK, MUTED, LINE, PAPER = "#1f2328", "#5b626b", "#dcd8d0", "#fdfcfa"
RIGHT, WRONG = "#0b7268", "#b3400f"
SERIES = (RIGHT, "#a8620a", "#6a4bb0", "#1f6cb5", "#b5386c", "#66707c")
"""A colour for each run or curve; the first is the accent."""
CLASSES = (
    *("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f"),
    *("#c9a227", "#b07aa1", "#ff9da7", "#9c755f", "#8c8c8c"),
)
"""Ten classes, readable on white and on black alike."""
VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", LINE: "var(--line)", PAPER: "var(--paper)"}
VARIABLES |= {WRONG: "var(--wrong)"} | {colour: f"var(--series-{i})" for i, colour in enumerate(SERIES, 1)}
"""The page's style sheet gives these a value for light and one for dark."""
FORMATS = (".svg", ".png", ".pdf")
RULES = {
    "svg.fonttype": "none",
    "svg.hashsalt": "iaa",
    "font.size": 9,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "text.color": INK,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.labelcolor": MUTED,
    "axes.titlesize": 9,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "errorbar.capsize": 2,
    "lines.markersize": 3,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
}


def figure_path(path: str | Path) -> Path:
    """The path of a figure, checked to have an ending that can be written."""
    if Path(path).suffix not in FORMATS:
        raise unknown("the figure's ending", Path(path).suffix, FORMATS)
    return Path(path)


@dataclass(frozen=True)
class Figure:
    """A figure with its file name, title, alternative text, and caption."""

    name: str
    figure: "MatplotlibFigure"
    title: str
    alt: str
    caption: str = ""

    def save(self, path: str | Path, *, dpi: int = 200) -> Path:
        """Write ``.svg``, ``.png`` or ``.pdf``, on white."""
        path = figure_path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        dated = {".svg": "Date", ".pdf": "CreationDate"}.get(path.suffix)
        with _quiet():
            self.figure.savefig(path, dpi=dpi, facecolor="white", metadata={dated: None} if dated else None)
        return path

    def svg(self, number: int) -> str:
        """For a page: transparent, colours as CSS variables, ids unique on the page."""
        out = io.StringIO()
        with _quiet():
            self.figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
        text = out.getvalue()
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>f{number}-", text)
        for size in ("width", "height"):
            text = re.sub(rf'<svg ([^>]*?){size}="[^"]*"', r"<svg \1", text)
        text = re.sub(r"#[0-9a-f]{6}\b", lambda colour: VARIABLES.get(colour[0], colour[0]), text)
        return text.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)


@contextmanager
def panels(
    columns: int = 1, rows: int = 1, *, width: float = 4.6, height: float = 2.9
) -> "Iterator[tuple[MatplotlibFigure, list[Axes]]]":
    """A figure of equal panels to draw on within the context, in the common style.

    ``width`` and ``height`` are those of one panel, in inches: small, so that letters can be read on a phone.
    """
    matplotlib = need("matplotlib", extra="report")
    figures = need("matplotlib.figure", extra="report")
    with matplotlib.rc_context(RULES):
        figure = figures.Figure(figsize=(width * columns, height * rows))
        yield figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def label_text(name: str, most: int = 28) -> str:
    """A name as a label: never read as a formula or hidden for a leading underscore, shortened if long."""
    short = name if len(name) <= most else name[: most - 1] + "…"
    return ("\u200b" if short.startswith("_") else "") + short.replace("$", r"\$")


@contextmanager
def _quiet() -> Iterator[None]:
    """Do not warn of letters that matplotlib's own font lacks: a browser has them."""
    matplotlib = need("matplotlib", extra="report")
    with matplotlib.rc_context(RULES), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from")
        yield
