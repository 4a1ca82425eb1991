"""``iaa data``: check a benchmark against the paper, show what your own data holds."""

import contextlib
import json as jsonlib
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table

from iaa.errors import need

if TYPE_CHECKING:
    from iaa.data.paper_stats import Facts

Spec = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SPEC")]
_COLUMNS = ("samples", "classes", "max", "min", "avg", "std")


def check(spec: Spec, root: Path | None = None, quick: bool = False, json: bool = False) -> int:
    """Compare a dataset with the paper's numbers and read every image.

    Args:
        spec: cub, cars, sop, inshop, vehicleid, emoji, folder:DIR or table:FILE.
        root: The folder with the dataset's files, or a .tar of it.
        quick: Check only the first and last bytes of every image.
        json: Print one JSON object instead of tables.
    """
    from iaa.data import evaluations, load
    from iaa.data.image_io import unreadable
    from iaa.data.paper_stats import PAPER, contradictions, differences, facts, summary

    with _extracted(root) as home:
        dataset = load(spec, root=home, size="large" if spec == "vehicleid" else None)
        parts = summary(dataset)
        paths = list(dataset.paths)
        if spec == "vehicleid":  # only its three test lists are defined, not the whole test set
            parts = {"train": parts["train"]}
            for size, part in evaluations(spec, root=home).items():
                parts[size] = facts(part)
                paths += list(part.paths)
        bad = unreadable(paths, thorough=not quick)
        bad_files = [(_below(error.path, home), error.reason) for error in bad]
    report = {
        "dataset": spec,
        "found": {part: asdict(row) for part, row in parts.items()},
        "paper": {part: dict(row.items()) for part, row in PAPER.get(spec, {}).items()},
        "differences": differences(spec, parts),
        "contradictions_in_the_paper": contradictions(spec),
        "unreadable": [{"path": path, "reason": reason} for path, reason in bad_files],
    }
    if json:
        print(jsonlib.dumps(report, indent=2))
        return 1 if bad else 0
    console = Console(soft_wrap=True)
    console.print(_table(spec, parts, PAPER.get(spec, {})))
    if spec in PAPER:
        _list(console, "Not as in the paper", differences(spec, parts), "All numbers are the paper's.")
        _list(console, "The paper contradicts itself", contradictions(spec), "")
    lines = [f"{path}: {reason}" for path, reason in bad_files]
    _list(
        console, f"{len(bad):,} images cannot be read", lines, f"All {len(set(paths)):,} images can be read."
    )
    return 1 if bad else 0


def _below(path: str, home: Path | None) -> str:
    """The path relative to the dataset's folder."""
    file = Path(path)
    return str(file.relative_to(home) if home is not None and file.is_relative_to(home) else file)


def stats(
    spec: Spec,
    root: Path | None = None,
    seed: int = 0,
    test_share: float | None = None,
    size: str | None = None,
    per_class: int | None = None,
    json: bool = False,
) -> int:
    """Show samples, classes and class sizes of any dataset, with a histogram.

    Args:
        spec: cub, cars, sop, inshop, vehicleid, emoji, folder:DIR or table:FILE.
        root: The folder with the dataset's files (for a table: what its paths are relative to).
        seed: Seed that draws the test classes of own data without a split, and the images of per-class.
        test_share: Share of the classes to test on, for your own data without a split (0.2).
        size: Test set of vehicleid: small, medium or large.
        per_class: Keep at most this many training images of every class.
        json: Print one JSON object instead of tables.
    """
    from iaa.data import load
    from iaa.data.paper_stats import histogram, summary

    dataset = load(spec, root=root, seed=seed, test_share=test_share, size=size, per_class=per_class)
    parts, bars = summary(dataset), histogram(dataset)
    if json:
        rows = [{"from": low, "to": high, "classes": number} for low, high, number in bars]
        report = {
            "dataset": spec,
            "found": {part: asdict(row) for part, row in parts.items()},
            "histogram": rows,
        }
        print(jsonlib.dumps(report, indent=2))
        return 0
    console = Console(soft_wrap=True)
    console.print(_table(spec, parts, {}))
    console.print("\nImages in a class   classes")
    most = max(number for *_, number in bars)
    for low, high, number in bars:
        label = str(low) if low == high else f"{low} - {high}"
        console.print(f"{label:>19}   {number:>7,} {'█' * round(40 * number / most)}", highlight=False)
    return 0


def sheet(
    spec: Spec, out: Path, root: Path | None = None, split: str = "train", classes: int = 12, columns: int = 8
) -> int:
    """Draw a contact sheet: a row per class, its images side by side.

    Args:
        spec: cub, cars, sop, inshop, vehicleid, emoji, folder:DIR or table:FILE.
        out: Image file to write.
        root: The folder with the dataset's files.
        split: train, val or test.
        classes: Number of rows.
        columns: Images a row.
    """
    import numpy as np

    from iaa.data import load
    from iaa.data.image_io import read

    pil = need("PIL.Image", extra="images")
    part = load(spec, root=root).part(split)
    if not len(part):
        raise ValueError(f"{spec} has no {split} part")
    labels, side = np.unique(part.labels), 96
    shown = labels[np.linspace(0, len(labels) - 1, min(classes, len(labels))).astype(int)]
    canvas = pil.new("RGB", (columns * (side + 4), len(shown) * (side + 4)), "lightgrey")
    for line, label in enumerate(shown):
        for column, row in enumerate(np.flatnonzero(part.labels == label)[:columns]):
            box = None if part.boxes is None else part.boxes[row]
            image = read(part.paths[row], at_least=side, box=box)
            image.thumbnail((side, side))
            x, y = column * (side + 4) + 2, line * (side + 4) + 2
            canvas.paste(image, (x + (side - image.width) // 2, y + (side - image.height) // 2))
    canvas.save(out)
    print(f"wrote {out}")
    return 0


command = {"check": check, "stats": stats, "sheet": sheet}


@contextlib.contextmanager
def _extracted(root: Path | None) -> Iterator[Path | None]:
    """The root itself, or a temporary folder with the contents of a tar archive."""
    if root is None or not root.is_file():
        yield root
        return
    if not tarfile.is_tarfile(root):
        raise ValueError(f"root {root} is neither a folder nor a tar archive")
    with tempfile.TemporaryDirectory() as folder:
        print(f"extracting {root} …", file=sys.stderr)
        with tarfile.open(root) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def _table(spec: str, parts: "dict[str, Facts]", paper: "dict[str, Facts]") -> Table:
    table = Table(title=spec)
    for column in ("part", "source", *_COLUMNS) if paper else ("part", *_COLUMNS):
        table.add_column(column, justify="left" if column in ("part", "source") else "right")
    for part, row in parts.items():
        source = ["here"] if paper else []
        table.add_row(part, *source, *(_cell(getattr(row, name)) for name in _COLUMNS))
        if part in paper:
            cells = [_paper_cell(getattr(paper[part], name), getattr(row, name)) for name in _COLUMNS]
            table.add_row("", "paper", *cells, end_section=True)
    return table


def _cell(value: int | float | None) -> str:
    return "" if value is None else f"{value:,}"


def _paper_cell(value: int | float | None, here: int | float) -> str:
    return _cell(value) if value is None or value == here else f"[bold red]≠ {value:,}[/]"


def _list(console: Console, title: str, lines: list[str], otherwise: str) -> None:
    if lines:
        console.print(
            f"\n{title}:", *(f"  {line}" for line in lines), sep="\n", markup=False, highlight=False
        )
    elif otherwise:
        console.print(otherwise, highlight=False)
