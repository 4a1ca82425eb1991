"""One self-contained HTML page from findings: no requests to the network, everything escaped."""

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from itertools import count
from typing import Any

from iaa.analysis.regression import best_untrained, lowered, regression_note, untrained_rows
from iaa.errors import need
from iaa.report import sections
from iaa.report.blocks import Headline, Page
from iaa.report.figure_style import Figure
from iaa.report.findings import Findings

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


def compose(
    all_findings: Sequence[Findings], *, made: str, tick: Callable[[float], None] = lambda done: None
) -> Page:
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
        made=made,
    )


def render(page: Page) -> str:
    """HTML in one file."""
    jinja2: Any = need("jinja2", extra="report")
    markup: Any = need("markupsafe", extra="report").Markup
    folder = resources.files("iaa.report") / "templates"
    numbers = count(1)

    def inline(figure: Figure) -> str:
        svg: str = markup(figure.svg(next(numbers)))
        return svg

    def code(text: str) -> str:
        parts = [markup.escape(part) for part in text.split("`")]
        marked: str = markup("").join(
            markup("<code>{}</code>").format(part) if number % 2 else part
            for number, part in enumerate(parts)
        )
        return marked

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = code
    environment.filters["without_sheet"] = lambda data: {k: v for k, v in data.items() if k != "sheet"}
    environment.globals["inline"] = inline
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
    loss = config.loss.replace("_", "-")
    return f"{data}: {loss}{' with IAA' if config.augment.copies else ' alone'}"


def _subtitle(all_findings: Sequence[Findings]) -> str:
    first = all_findings[0]
    scores = next(iter(first.scores.values()), None)
    if scores is None:
        return ""
    if len({_test_sizes(findings) for findings in all_findings}) > 1:
        return "These runs were tested on different data: their scores cannot be compared."
    train = (first.run.metrics or {}).get("train")
    learned = f"Trained on {train['classes']:,} classes, tested" if train else "Tested"
    other = " other" if train and not train.get("tested_as_well") else ""
    queries = f"with {scores.queries:,} queries of {scores.classes:,}{other} classes"
    return f"{learned} {queries}: how often is the nearest image of the same class?"


def _test_sizes(findings: Findings) -> tuple[tuple[str, int, int], ...]:
    return tuple((part, scores.queries, scores.classes) for part, scores in findings.scores.items())


def _untrained(findings: Findings, part: str) -> dict[str, Mapping[str, float]]:
    return untrained_rows((findings.run.metrics or {}).get("table", {}), part)


def _warnings(all_findings: Sequence[Findings]) -> Iterator[str]:
    """A sentence for every run and test part whose scores training lowered."""
    for findings in all_findings:
        for part, scores in findings.scores.items():
            if findings.run.metrics:
                name = "Training" if len(all_findings) == 1 else findings.name
                note = regression_note(scores.values, _untrained(findings, part), name=name)
                if note:
                    yield note if len(findings.scores) == 1 else f"{part}: {note}"


def _headline(all_findings: Sequence[Findings]) -> Iterator[Headline]:
    """Two metrics of one run, or one metric of every run; and the best score before training."""
    alone = len(all_findings) == 1
    part = next(iter(all_findings[0].scores), "test")
    for findings in all_findings[:4]:
        untrained = _untrained(findings, part)
        reference = untrained.get(best_untrained(untrained) or "", {})
        for metric in ("R@1", "MAP@R") if alone else ("R@1",):
            score = findings.scores[part].metrics.get(metric) if part in findings.scores else None
            if score:
                low, high = score["over_classes"]
                label = metric if alone else f"{findings.name}, {metric}"
                worse = bool(lowered({metric: score["value"]}, reference))
                yield Headline(label, f"{score['value']:.1f} %", f"95 %: {low:.1f} – {high:.1f}", worse)
    before = {
        name: scores["R@1"] for name, scores in _untrained(all_findings[0], part).items() if "R@1" in scores
    }
    if alone and before:
        name = max(before, key=before.__getitem__)
        yield Headline(f"R@1 of {name}", f"{before[name]:.1f} %", "before any training")
