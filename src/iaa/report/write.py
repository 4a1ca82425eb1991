"""Write the report: collect all analyses of some runs, compose the page, write it as one HTML file."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from iaa import __version__
from iaa.errors import need
from iaa.files import write_text
from iaa.report import figures as draw
from iaa.report.analysis_input import Split
from iaa.report.blocks import Page, Strips
from iaa.report.collect import CollectOptions, collect
from iaa.report.figure_style import Figure
from iaa.report.findings import Findings
from iaa.report.image_figures import contact_sheet
from iaa.report.page import compose, render
from iaa.runs import REPORT

ENDINGS = (".svg", ".png")


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
    """Write one page about one or more runs; returns the files written, the page first.

    ``out`` is ``report.html`` in the run by default, or in the working directory if there are several runs.
    ``figures`` is a folder for every figure as ``.svg`` and ``.png``; ``images`` are folders in which to look
    for images whose ids are not paths.
    """
    if not runs:
        raise ValueError("name at least one run directory or embeddings file")
    if queries < 1 or answers < 1:
        raise ValueError(f"queries and answers must be at least 1, got {queries} and {answers}")
    first = Path(runs[0])
    alone = len(runs) == 1 and first.is_dir()
    target = Path(out) if out is not None else (first / REPORT if alone else Path(REPORT))
    if target.suffix != ".html":
        raise ValueError(f"out must name a .html file, got {target}")
    for package in ("jinja2", "matplotlib", "sklearn"):  # before any work
        need(package, extra="report")
    start = time.monotonic()
    options = CollectOptions(tuple(map(Path, images)), queries, answers, split, seed, quiet)
    findings = collect(runs, options)
    with options.progress("drawing") as tick:
        page = compose(findings, made=_made(), tick=tick)
        write_text(target, render(page))
    written = [target, *(write_figures(findings, page, Path(figures)) if figures else [])]
    if not quiet:
        size, took = target.stat().st_size / 2**20, time.monotonic() - start
        print(f"{size:.1f} MiB in {took:.0f} s", file=sys.stderr)
    return written


def _made() -> str:
    return f"Made by iaa {__version__} on {time.strftime('%d %B %Y, %H:%M')}. All of it is in this one file."


def write_figures(all_findings: Sequence[Findings], page: Page, folder: Path) -> list[Path]:
    """Write figures as ``.svg`` and ``.png``, strips of images as ``.png``; equal names get a number."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for figure in _figures(all_findings):
        stem = _free_stem(figure.name, written)
        written += [figure.save(folder / f"{stem}{ending}") for ending in ENDINGS]
    for block in (block for section in page.sections for block in section.blocks):
        if isinstance(block, Strips):
            stem = _free_stem("-".join(block.title.lower().split()), written)
            written.append(contact_sheet(block, folder / f"{stem}.png"))
    return written


def _figures(all_findings: Sequence[Findings]) -> Iterator[Figure]:
    logs = [findings.run.log for findings in all_findings if findings.run.log]
    if logs:
        yield draw.losses(logs)
        if all(log.validation for log in logs):
            yield draw.validation(logs)
    mined = [findings.mining for findings in all_findings if findings.mining and findings.mining.chooses]
    if mined:
        yield draw.mining(mined)
    pairs = [findings.similarity for findings in all_findings if findings.similarity]
    if pairs:
        yield draw.similarity(pairs)
    for findings in all_findings:
        if findings.correlation:
            yield draw.correlation(findings.correlation)
        if findings.variety:
            yield draw.variety(findings.variety)
        if findings.weights:
            yield draw.weights(findings.weights)
        if findings.projection:
            names = {
                label: findings.class_name(label) for label in findings.projection.labels.unique().tolist()
            }
            yield draw.tsne(findings.projection, names)
        if findings.cost:
            yield draw.cost(findings.cost)


def _free_stem(stem: str, written: Sequence[Path]) -> str:
    taken, name, number = {path.stem for path in written}, stem, 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}"
    return name
