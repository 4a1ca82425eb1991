"""One self-contained page: findings to sections, sections to HTML; no network, nothing unescaped."""

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from importlib import resources
from itertools import count
from typing import Any

from iaa.errors import need
from iaa.report import sections
from iaa.report.blocks import Page
from iaa.report.figure_style import Drawing
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
    sections.ran,
)


def compose(
    every: Sequence[Findings], *, made: str, tick: Callable[[float], None] = lambda done: None
) -> Page:
    """The page of some runs, side by side."""
    found = []
    for place, section in enumerate(SECTIONS, 1):
        found.append(section(every))
        tick(place / len(SECTIONS))
    left_out = dict.fromkeys(
        (what, f"{one.name}: {why}" if len(every) > 1 else why)
        for one in every
        for what, why in one.missing.items()
    )
    return Page(
        title=_title(every),
        over="Report of a run" if len(every) == 1 else f"Report of {len(every)} runs",
        subtitle=_subtitle(every),
        headline=tuple(_headline(every)),
        runs=tuple(one.name for one in every),
        sections=[section for section in found if section is not None],
        left_out=tuple(left_out),
        made=made,
    )


def render(page: Page) -> str:
    """HTML in one file."""
    jinja2: Any = need("jinja2", extra="report")
    markup: Any = need("markupsafe", extra="report").Markup
    folder = resources.files("iaa.report") / "templates"
    numbers = count(1)

    def inline(drawing: Drawing) -> str:
        svg: str = markup(drawing.svg(next(numbers)))
        return svg

    def code(words: str) -> str:
        parts = [markup.escape(part) for part in words.split("`")]
        marked: str = markup("").join(
            markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts)
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
    text: str = environment.get_template("page.html").render(
        page=page,
        style=markup((folder / "style.css").read_text("utf-8")),
        script=markup(script),
        script_hash=f"'sha256-{digest}'",
    )
    return text


def _title(every: Sequence[Findings]) -> str:
    titles = list(dict.fromkeys(_recipe(one) for one in every))
    return titles[0] if len(titles) == 1 else " and ".join(titles) if len(titles) == 2 else "Runs compared"


def _recipe(one: Findings) -> str:
    config = one.run.config
    if config is None:
        return one.name
    data = re.sub(r".*/|\.\w+$", "", config.data.rstrip("/"))
    loss = config.loss.replace("_", "-")
    return f"{data}: {loss}{' with IAA' if config.augment.copies else ' alone'}"


def _subtitle(every: Sequence[Findings]) -> str:
    scores = next(iter(every[0].scores.values()), None)
    if scores is None:
        return ""
    if len({_asked(one) for one in every}) > 1:
        return "These runs were asked different things: their numbers cannot be held against each other."
    trained = (every[0].run.metrics or {}).get("train")
    learned = f"Trained on {trained['classes']:,} classes, " if trained else ""
    other = " other" if trained and not trained.get("tested_as_well") else ""
    asked = f"asked {scores.queries:,} times about {scores.classes:,}{other} classes"
    words = f"{learned}{asked}: how often is the nearest of the same class?"
    return words if learned else words[0].upper() + words[1:]


def _asked(one: Findings) -> tuple[tuple[str, int, int], ...]:
    return tuple((part, scores.queries, scores.classes) for part, scores in one.scores.items())


def _headline(every: Sequence[Findings]) -> list[tuple[str, str, str]]:
    """Large numbers: two metrics of one run, or one metric of every run."""
    part = next(iter(every[0].scores), "test")
    metrics = ("R@1", "MAP@R") if len(every) == 1 else ("R@1",)
    rows = []
    for one in every[:4]:
        for metric in metrics:
            found = one.scores[part].metrics.get(metric) if part in one.scores else None
            if found:
                low, high = found["over_classes"]
                label = metric if len(every) == 1 else f"{one.name}, {metric}"
                rows.append((label, f"{found['value']:.1f} %", f"95 %: {low:.1f} – {high:.1f}"))
    table = (every[0].run.metrics or {}).get("table", {})
    others = {name: tests for name, tests in table.items() if not name.startswith("trained")}
    before = [(name, tests[part]["R@1"]) for name, tests in others.items() if "R@1" in tests.get(part, {})]
    if len(every) == 1 and before:
        name, value = max(before, key=lambda pair: pair[1])
        rows.append((f"R@1 of {name}", f"{value:.1f} %", "before any training"))
    return rows
