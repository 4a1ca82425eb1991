"""Write the report: collect every analysis of some runs, compose the page, write one HTML file."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from iaa import __version__
from iaa.errors import need
from iaa.files import write_text
from iaa.report.analysis_input import Split


def write_report(
    runs: Sequence[str | os.PathLike[str]],
    out: str | Path | None = None,
    *,
    figures: str | Path | None = None,
    images: Sequence[str | Path] = (),
    split: Split = "auto",
    queries: int = 8,
    answers: int = 5,
    seed: int = 0,
    quiet: bool = False,
) -> list[Path]:
    """Write one page about one or more runs; returns the files written, the page first."""
    if not runs:
        raise ValueError("name at least one run directory or embeddings file")
    if queries < 1 or answers < 1:
        raise ValueError(f"queries and answers must be 1 or more, got {queries} and {answers}")
    first = Path(runs[0])
    alone = len(runs) == 1 and first.is_dir()
    target = Path(out) if out is not None else (first / "report.html" if alone else Path("report.html"))
    if target.suffix != ".html":
        raise ValueError(f"--out must name a .html file, got {target}")
    for package in ("jinja2", "matplotlib", "sklearn"):  # before any work
        need(package, extra="report")
    from iaa.report.collect import Wishes, bar, gather
    from iaa.report.figure_files import write_figures
    from iaa.report.page import compose, render

    began = time.monotonic()
    wishes = Wishes(tuple(map(Path, images)), queries, answers, split, seed, quiet)
    every = gather(runs, wishes)
    with bar("drawing", wishes) as tick:
        page = compose(every, made=_made(), tick=tick)
        text = render(page)
    write_text(target, text)
    written = [target, *(write_figures(every, page, Path(figures)) if figures else [])]
    if not quiet:
        size, took = len(text.encode()) / 2**20, time.monotonic() - began
        print(f"{size:.1f} MiB in {took:.0f} s", file=sys.stderr)
    return written


def _made() -> str:
    return f"Made by iaa {__version__} on {time.strftime('%d %B %Y, %H:%M')}. All of it is in this one file."
