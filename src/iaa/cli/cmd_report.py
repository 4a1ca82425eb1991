"""``iaa report``: one page about one run or several, with images, in one file."""

import sys
import time
from pathlib import Path
from typing import Annotated

import tyro

from iaa import __version__
from iaa.report.analysis_input import Split
from iaa.report.collect import Wishes, bar, gather


def command(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    out: Path | None = None,
    figures: Path | None = None,
    images: tuple[Path, ...] = (),
    split: Split = "auto",
    queries: int = 8,
    answers: int = 5,
    seed: int = 0,
) -> int:
    """Write one page about one run or several: scores, images found, curves, classes. It needs no network.

    Args:
        runs: Run directories, or embeddings files; several are laid side by side, and against the first.
        out: The .html to write; without it, report.html in the run, or here if there are several.
        figures: Every figure also as .svg and .png into this folder.
        images: Folders with the images, where the ids of the embeddings are no paths.
        split: Whose classes the atlas, the map and the verdict describe; auto is those of training.
        queries: Queries to show, as many drawn at random as worst ones.
        answers: Answers to each query.
        seed: Draws queries, classes and synthetics.
    """
    if not runs:
        raise ValueError("name at least one run directory or embeddings file")
    if queries < 1 or answers < 1:
        raise ValueError(f"queries and answers must be 1 or more, got {queries} and {answers}")
    target = out or (runs[0] / "report.html" if len(runs) == 1 and runs[0].is_dir() else Path("report.html"))
    if target.suffix != ".html":
        raise ValueError(f"--out must name a .html file, got {target}")
    wishes = Wishes(tuple(images), queries, answers, split, seed)
    written = write_report(runs, target, wishes, figures=figures)
    for path in written:
        print(path)
    return 0


def write_report(
    runs: tuple[Path, ...],
    target: Path,
    wishes: Wishes | None = None,
    *,
    figures: Path | None = None,
    quiet: bool = False,
) -> list[Path]:
    """Gather, draw and write; the files that were written, the page first."""
    from iaa.errors import need
    from iaa.report.figure_files import write_figures
    from iaa.report.page import compose, render
    from iaa.training.runs import write

    for package in ("jinja2", "matplotlib", "sklearn"):  # said before any work
        need(package, extra="report")
    began = time.monotonic()
    wishes = wishes or Wishes(quiet=quiet)
    every = gather(runs, wishes)
    with bar("drawing", wishes) as tick:
        page = compose(every, made=_made(), tick=tick)
        text = render(page)
    target.parent.mkdir(parents=True, exist_ok=True)
    write(target, text.encode())
    written = [target, *(write_figures(every, page, figures) if figures else [])]
    if not quiet:
        size, took = len(text.encode()) / 2**20, time.monotonic() - began
        print(f"{size:.1f} MiB in {took:.0f} s", file=sys.stderr)
    return written


def _made() -> str:
    return f"Made by iaa {__version__} on {time.strftime('%d %B %Y, %H:%M')}. All of it is in this one file."
