"""The report: one self-contained HTML page about some runs, without network requests, everything escaped."""

import base64
import hashlib
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Any

from iaa import __version__
from iaa.analysis.regression import lowered, regression_note
from iaa.errors import need
from iaa.files import write_text
from iaa.report import sections
from iaa.report.analysis_input import Split
from iaa.report.blocks import Figures, Headline, Page, Strips
from iaa.report.collect import CollectOptions, collect
from iaa.report.findings import Findings
from iaa.report.image_blocks import contact_sheet
from iaa.runs import REPORT

SECTIONS = (
    sections.results,
    sections.retrieval,
    sections.training,
    sections.correlation,
    sections.space,
    sections.synthetics,
    sections.atlas,
    sections.cost,
    sections.configuration,
)


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
        page = compose(findings, tick)
        write_text(target, render(page))
    written = [target, *(write_figures(page, Path(figures)) if figures else [])]
    if not quiet:
        size, took = target.stat().st_size / 2**20, time.monotonic() - start
        print(f"{size:.1f} MiB in {took:.0f} s", file=sys.stderr)
    return written


def write_figures(page: Page, folder: Path) -> list[Path]:
    """Write the page's figures as ``.svg`` and ``.png``, its strips of images as ``.png``."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    names: Counter[str] = Counter()

    def unique(name: str) -> str:
        names[name] += 1
        return name if names[name] == 1 else f"{name}-{names[name]}"

    for block in (block for section in page.sections for block in section.blocks):
        if isinstance(block, Figures):
            for figure in block.figures:
                name = unique(figure.name)
                written += [figure.save(folder / f"{name}{ending}") for ending in (".svg", ".png")]
        elif isinstance(block, Strips):
            name = unique("-".join(block.title.lower().split()))
            written.append(contact_sheet(block, folder / f"{name}.png"))
    return written


def compose(all_findings: Sequence[Findings], tick: Callable[[float], None] = lambda done: None) -> Page:
    """The page of one or more runs."""
    composed = []
    for number, section in enumerate(SECTIONS, 1):
        composed.append(section(all_findings))
        tick(number / len(SECTIONS))
    left_out = dict.fromkeys(
        (what, f"{findings.name}: {reason}" if len(all_findings) > 1 else reason)
        for findings in all_findings
        for what, reason in findings.missing.items()
    )
    return Page(
        title=_title(all_findings),
        kicker="Report of a run" if len(all_findings) == 1 else f"Report of {len(all_findings)} runs",
        subtitle=_subtitle(all_findings),
        headline=tuple(_headline(all_findings)),
        warnings=tuple(_warnings(all_findings)),
        runs=tuple(findings.name for findings in all_findings),
        sections=[section for section in composed if section is not None],
        left_out=tuple(left_out),
        made=f"Made by iaa {__version__} on {time.strftime('%d %B %Y, %H:%M')}. It is all in this one file.",
    )


def render(page: Page) -> str:
    """HTML in one file."""
    jinja2: Any = need("jinja2", extra="report")
    markup: Any = need("markupsafe", extra="report").Markup
    folder = resources.files("iaa.report") / "templates"
    numbers = count(1)

    def code(text: str) -> Any:
        return markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(markup.escape(text))))

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = code
    environment.filters["without_sheet"] = lambda data: {k: v for k, v in data.items() if k != "sheet"}
    environment.globals["inline"] = lambda figure: markup(figure.svg(next(numbers)))
    script = (folder / "atlas.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    html: str = environment.get_template("page.html").render(
        page=page,
        style=markup((folder / "style.css").read_text("utf-8")),
        script=markup(script),
        script_hash=f"'sha256-{digest}'",
    )
    return html


def _title(all_findings: Sequence[Findings]) -> str:
    titles = list(dict.fromkeys(_recipe(findings) for findings in all_findings))
    return titles[0] if len(titles) == 1 else " and ".join(titles) if len(titles) == 2 else "Runs compared"


def _recipe(findings: Findings) -> str:
    config = findings.run.config
    if config is None:
        return findings.name
    data = re.sub(r".*/|\.\w+$", "", config.data.rstrip("/"))
    if not config.trains:
        return f"{data}: {config.network.head if config.network.head != 'none' else 'frozen network'}"
    loss = config.loss.replace("_", "-")
    return f"{data}: {loss}{' with IAA' if config.augment.copies else ' alone'}"


def _subtitle(all_findings: Sequence[Findings]) -> str:
    first = all_findings[0]
    scores = next(iter(first.scores.values()), None)
    if scores is None:
        return ""
    if len({_test_sizes(findings) for findings in all_findings}) > 1:
        return "These runs were tested on different data: their scores cannot be compared."
    train = first.run.metrics.get("train")
    learned = f"Trained on {train['classes']:,} classes, tested" if train else "Tested"
    other = " other" if train and not train.get("tested_as_well") else ""
    queries = f"with {scores.queries:,} queries of {scores.classes:,}{other} classes"
    return f"{learned} {queries}: how often is the nearest image of the same class?"


def _test_sizes(findings: Findings) -> tuple[tuple[str, int, int], ...]:
    return tuple((part, scores.queries, scores.classes) for part, scores in findings.scores.items())


def _warnings(all_findings: Sequence[Findings]) -> Iterator[str]:
    """A sentence for every run and test part whose scores training lowered."""
    for findings in all_findings:
        for part, scores in findings.scores.items():
            if findings.run.metrics:
                name = "Training" if len(all_findings) == 1 else findings.name
                note = regression_note(scores.values, findings.untrained(part), name=name)
                if note:
                    yield note if len(findings.scores) == 1 else f"{part}: {note}"


def _headline(all_findings: Sequence[Findings]) -> Iterator[Headline]:
    """Two metrics of one run, or one metric of every run; and the best score before training."""
    alone = len(all_findings) == 1
    part = next(iter(all_findings[0].scores), "test")
    for findings in all_findings[:4]:
        for metric in ("R@1", "MAP@R") if alone else ("R@1",):
            score = findings.scores[part].metrics.get(metric) if part in findings.scores else None
            if score:
                low, high = score["over_classes"]
                label = metric if alone else f"{findings.name}, {metric}"
                worse = bool(lowered({metric: score["value"]}, findings.reference(part)))
                yield Headline(label, f"{score['value']:.1f} %", f"95 %: {low:.1f} – {high:.1f}", worse)
    untrained = all_findings[0].untrained(part)
    before = {name: scores["R@1"] for name, scores in untrained.items() if "R@1" in scores}
    if alone and before:
        name = max(before, key=before.__getitem__)
        yield Headline(f"R@1 of {name}", f"{before[name]:.1f} %", "before any training")
