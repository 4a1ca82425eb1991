"""Tables on the screen that line up, and the same in full as CSV and JSON files."""

import importlib
import json as jsonlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from iaa.analysis.serialize import csv_text, plain
from iaa.files import write_text
from iaa.report.figure_style import drawable

FigureFile = Annotated[
    Path | None,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=lambda words: drawable(words[0]),
        is_instance=lambda given: given is None or isinstance(given, Path),
        str_from_instance=lambda path: [str(path)],
    ),
]
"""Refused before the work if no figure can be written under this name."""
LONG = 48
"""Characters of a path that are printed."""


@dataclass(frozen=True)
class Sheet:
    """A table: what is printed of it, and its numbers in full for a CSV file of that name."""

    name: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    printed: int | None = None
    """Rows printed; all if None."""
    formats: dict[str, str] = field(default_factory=dict)
    """By column, how its numbers are printed."""
    hidden: tuple[str, ...] = ()
    """Columns for the file alone."""


@dataclass(frozen=True)
class Shown:
    """Tables and sentences, in the order they are printed in."""

    sheets: Sequence[Sheet]
    words: Sequence[str] = ()


def finish(
    name: str, found: Any, shown: Shown, *, out: Path | None, figure: Path | None = None, json: bool = False
) -> int:
    """Print a result, and write what was asked for."""
    if json:
        print(jsonlib.dumps(plain(found), indent=1))
    else:
        _print(shown)
    if out is not None:
        files = {f"{name}.json": jsonlib.dumps(plain(found), indent=1) + "\n"}
        files |= {f"{name}.md": _markdown(shown)}
        files |= {f"{sheet.name}.csv": csv_text(sheet.head, sheet.rows) for sheet in shown.sheets}
        for file, text in files.items():
            write_text(out / file, text)
        if not json:
            print(f"Written to {out}: {', '.join(files)}")
    if figure is not None:
        figures = importlib.import_module("iaa.report.figures")
        getattr(figures, name)(found, figure)
        if not json:
            print(f"Drawn: {figure}")
    return 0


def _markdown(shown: Shown) -> str:
    """What is printed, as a page."""
    text = []
    for sheet in shown.sheets:
        columns = [place for place, name in enumerate(sheet.head) if name not in sheet.hidden]
        if sheet.printed == 0 or not sheet.rows:
            continue
        text += [f"**{sheet.title}**", ""]
        text += [_line(sheet.head[place] for place in columns), _line("---" for _ in columns)]
        text += [
            _line(_cell(row[place], sheet.formats.get(sheet.head[place], "")) for place in columns)
            for row in sheet.rows[: sheet.printed]
        ]
        text.append("")
    return "\n".join([*text, *(f"- {words}" for words in shown.words)]) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.strip().replace('|', chr(92) + '|') for cell in cells)} |"


def _print(shown: Shown) -> None:
    console = Console(width=None if Console().is_terminal else 200)
    for sheet in shown.sheets:
        if sheet.printed == 0 or not sheet.rows:
            continue
        columns = [place for place, name in enumerate(sheet.head) if name not in sheet.hidden]
        table = Table()
        for place in columns:
            right = all(isinstance(row[place], int | float | None) for row in sheet.rows)
            table.add_column(sheet.head[place], justify="right" if right else "left")
        for row in sheet.rows[: sheet.printed]:
            table.add_row(
                *(_escaped(row[place], sheet.formats.get(sheet.head[place], "")) for place in columns)
            )
        console.print(sheet.title, highlight=False, markup=False, style="italic")
        console.print(table)
        left = len(sheet.rows) - len(sheet.rows[: sheet.printed])
        if left:
            console.print(f"… and {left:,} more rows; --out writes them all", highlight=False)
    for words in shown.words:
        console.print(words, highlight=False, markup=False)


def _cell(value: object, form: str) -> str:
    """A number by its format; of a long path its end, which says most."""
    if value is None:
        return "-"
    words = f"{value:{form}}"
    if "/" in words and len(words) > LONG:
        words = f"…{words[1 - LONG :]}"
    return words


def _escaped(value: object, form: str) -> str:
    return escape(_cell(value, form))
