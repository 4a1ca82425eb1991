"""Tables printed to the terminal, and the same results in full as CSV, JSON and Markdown files."""

import importlib
import json as jsonlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from iaa.analysis.serialize import csv_text, markdown_table, plain
from iaa.files import write_text
from iaa.report.figure_style import figure_path
from iaa.terminal import escape, printable


@dataclass(frozen=True)
class TableOptions:
    """Where results go."""

    out: Path | None = None
    """Directory for the results in full, as .md, .csv and .json."""
    json: bool = False
    """Print JSON instead of tables."""


@dataclass(frozen=True)
class OutputOptions(TableOptions):
    """Where results go."""

    figure: Path | None = None
    """Also draw them to this file (.svg, .png, .pdf)."""

    def __post_init__(self) -> None:
        if self.figure is not None:  # refused before the work starts
            figure_path(self.figure)


TO_TERMINAL = OutputOptions()
OutputGroup = Annotated[OutputOptions, tyro.conf.arg(name="")]
LONG = 48
"""Characters of a path that are printed."""


@dataclass(frozen=True)
class ResultTable:
    """A table: what is printed of it, and its numbers in full for a CSV file of that name."""

    name: str
    title: str
    columns: dict[str, str]
    """Their names, and the format in which their numbers are printed."""
    rows: Sequence[Sequence[object]]
    printed: int | None = None
    """Rows printed; all if None."""
    hidden: tuple[str, ...] = ()
    """Columns that only the file has."""

    def visible(self, row: Iterable[object]) -> list[Any]:
        """The entries of a row whose columns are printed."""
        return [cell for name, cell in zip(self.columns, row, strict=True) if name not in self.hidden]

    def cells(self) -> list[list[str]]:
        """The printed rows as text."""
        formats = self.visible(self.columns.values())
        return [[*map(_cell, self.visible(row), formats)] for row in self.rows[: self.printed]]


@dataclass(frozen=True)
class Output:
    """Tables, and notes below them, in the order in which they are printed."""

    tables: Sequence[ResultTable]
    notes: Sequence[str] = ()


def finish(name: str, result: Any, output: Output, options: TableOptions) -> int:
    """Print a result, and write the files that were asked for."""
    content = jsonlib.dumps(plain(result), indent=1)
    if options.json:
        print(content)
    else:
        _print(output)
    written = []
    if options.out is not None:
        files = {f"{name}.json": content + "\n", f"{name}.md": _markdown(output)}
        files |= {f"{table.name}.csv": csv_text(table.columns, table.rows) for table in output.tables}
        for file, text in files.items():
            write_text(options.out / file, text)
        written = [f"Written to {options.out}: {', '.join(files)}"]
    if isinstance(options, OutputOptions) and options.figure is not None:
        figures = importlib.import_module("iaa.report.figures")
        getattr(figures, name)(result).save(options.figure)
        written += [f"Figure: {options.figure}"]
    if not options.json:
        print(*written, sep="\n", end="\n" * bool(written))
    return 0


def print_tables(
    title: str, tables: Mapping[str, Sequence[Sequence[str]]], notes: Sequence[str] = ()
) -> None:
    """Print tables of text by test set, the head first, and notes below them."""
    results = [
        ResultTable(test, title + ("" if test == "test" else f", {test}"), dict.fromkeys(head, ""), rows)
        for test, (head, *rows) in tables.items()
    ]
    _print(Output(results, notes))


def _markdown(output: Output) -> str:
    """What is printed, as a page."""
    text: list[str] = []
    for table in output.tables:
        if table.printed != 0 and table.rows:
            head = table.visible(table.columns)
            text += [f"**{table.title}**", "", *markdown_table(head, table.cells()), ""]
    return "\n".join([*text, *(f"- {note}" for note in output.notes)]) + "\n"


def _print(output: Output) -> None:
    console = Console(width=None if Console().is_terminal else 200)
    for table in output.tables:
        if table.printed == 0 or not table.rows:
            continue
        shown = Table()
        values = zip(*map(table.visible, table.rows), strict=True)
        for name, column in zip(table.visible(table.columns), values, strict=True):
            words = any(isinstance(value, str) and value[:1].isalpha() for value in column)
            shown.add_column(name, justify="left" if words else "right")
        for cells in table.cells():
            shown.add_row(*map(escape, cells))
        console.print(printable(table.title), highlight=False, markup=False, style="italic")
        console.print(shown)
        more = len(table.rows) - len(table.rows[: table.printed])
        if more:
            console.print(f"… and {more:,} more rows; --out writes them all", highlight=False)
    for note in output.notes:
        console.print(printable(note), highlight=False, markup=False, soft_wrap=True)


def _cell(value: object, form: str) -> str:
    """A number by its format; of a long path its end, which says most."""
    if value is None:
        return "-"
    text = f"{value:{form}}"
    return f"…{text[1 - LONG :]}" if "/" in text and len(text) > LONG else text
