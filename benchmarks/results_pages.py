"""The results pages and README's table, written from the files that benchmarks/results.py keeps.

python benchmarks/results_pages.py
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from markdown_tables import PLUS, grid, number, p_value
from measurement import HERE
from results_choices import choices
from results_generators import generators
from results_ladder import LADDER_FILE, ladder
from results_prose import (
    ABLATIONS,
    CEILING,
    CHOICES,
    CORRECTION,
    CORRELATION,
    DUPLICATES,
    HARDNESS,
    LADDER,
    LEGEND,
    LOSSES_PAGE,
    RESULTS,
    TITLES,
    TRAINED,
)
from studies import FURTHER, LOSSES

from iaa.analysis.experiments import paired

DOCS = HERE.parent / "docs"
KEPT = DOCS / "results"
README = HERE.parent / "README.md"
MAIN = ("default", *LOSSES)
MARKS = "<!-- results -->", "<!-- end of results -->"
"""README's table stands between these."""
SOURCES = ("uncorrected", "corrected", "all samples")


def pages(kept: Path = KEPT) -> dict[str, str]:
    """Every page by its path below docs/."""
    found = {
        "results.md": "\n".join([RESULTS, *_overview(kept), LEGEND]),
        "results/losses.md": "\n".join([LOSSES_PAGE, *_losses(kept)]),
        "results/correction.md": "\n".join([CORRECTION, *_correction(kept)]),
        "results/ablations.md": "\n".join([ABLATIONS, *_ablations(kept)]),
        "results/choices.md": "\n".join([CHOICES, *choices()]),
    }
    if compared := "\n".join(generators(kept)):
        found["results/generators.md"] = compared
    return found


def readme(text: str, kept: Path = KEPT) -> str:
    """README with the short table between its two marks."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n" + "\n".join(_short(kept)) + f"{MARKS[1]}{after}"


def _overview(kept: Path) -> Iterator[str]:
    if LADDER_FILE.exists():
        yield LADDER
        yield from ladder()
    yield TRAINED
    yield from _trained(kept)


def _short(kept: Path) -> Iterator[str]:
    """The ladder, or what there is without it."""
    return ladder() if LADDER_FILE.exists() else _trained(kept)


def _trained(kept: Path) -> Iterator[str]:
    """Untrained, trained, and trained with IAA: one row for each data set, with the default loss."""
    rows = []
    for bench, _, study in _comparisons(kept, LOSSES[:1]):
        cells = (
            " / ".join(f"{_score(study, metric, arm):.1f}" for metric in ("R@1", "MAP@R"))
            for arm in ("baseline", "iaa")
        )
        rows.append([TITLES[bench], _untrained(study), *cells, str(len(study["seeds"]))])
    yield from grid(["R@1 / MAP@R", "untrained", "trained", "trained + IAA", "seeds"], rows)


def _tally(kept: Path, losses: Iterable[str]) -> str:
    """How many comparisons gained, lost, or showed nothing."""
    counts = {metric: {"rose": 0, "fell": 0, "all": 0} for metric in ("R@1", "MAP@R")}
    for _, _, study in _comparisons(kept, losses):
        for metric, count in counts.items():
            scores = study["summary"]["test"][metric]
            gain = paired(scores["baseline"]["values"], scores["iaa"]["values"])
            count["all"] += 1
            if gain.p_t is not None and gain.p_t < 0.05:
                count["rose" if gain.difference > 0 else "fell"] += 1
    parts = (f"{metric} rose in {c['rose']} and fell in {c['fell']}" for metric, c in counts.items())
    return f"Of {counts['R@1']['all']} comparisons, {', '.join(parts)} (p < 0.05).\n"


def _losses(kept: Path) -> Iterator[str]:
    yield _tally(kept, [*MAIN, *FURTHER])
    yield "## Main losses\n"
    yield from _table(kept, MAIN)
    yield "## Further losses\n"
    yield from _table(kept, FURTHER)
    yield DUPLICATES
    yield from _table(kept, MAIN, ("duplicates", "iaa"))
    yield from _hardness()
    yield from _files(kept, [*MAIN, *FURTHER])


def _correction(kept: Path) -> Iterator[str]:
    yield from _table(kept, MAIN, ("no-correction", "iaa"))
    yield from _ceiling()
    files = sorted(kept.glob("*-correlation.md"))
    if files:
        yield CORRELATION
    for file in files:
        bench = file.stem.removesuffix("-correlation")
        yield f"### {bench}\n\n{file.read_text()}"
        yield f"Full table: [{file.stem}.csv]({file.stem}.csv).\n"


def _ablations(kept: Path) -> Iterator[str]:
    """Each ablation as its table and figure; notes and commands stay in the file it links to."""
    for bench, about in TITLES.items():
        sections = [*_sections(kept, bench)]
        if sections:
            yield f"## {about}\n"
            yield from sections


def _sections(kept: Path, bench: str) -> Iterator[str]:
    for file in sorted(kept.glob(f"{bench}-*.md")):
        study = file.stem.removeprefix(f"{bench}-")
        if _bench_of(file.stem) != bench or study in (*MAIN, *FURTHER, "correlation"):
            continue
        title, _, body = file.read_text().partition("\n")
        yield f"### {study}: {title.removeprefix('# ')}\n"
        yield from (line.replace(" ± ", PLUS) for line in body.splitlines() if line.startswith("|"))
        yield ""
        if file.with_suffix(".svg").exists():
            yield f"![{file.stem}]({file.stem}.svg)\n"
        yield f"[Notes, command and versions]({file.name}) · [numbers of every seed]({file.stem}.json)\n"


def _files(kept: Path, losses: Iterable[str]) -> Iterator[str]:
    """Links to the full tables of comparisons."""
    yield "## Full tables\n"
    yield "All metrics, all arms, the command, the commit and the versions:\n"
    for bench in TITLES:
        names = [f"{bench}-{loss}" for loss in losses if (kept / f"{bench}-{loss}.md").exists()]
        if names:
            links = (f"[{name.removeprefix(bench + '-')}]({name}.md)" for name in names)
            yield f"- {bench}: {', '.join(links)}"
    yield ""


def _comparisons(kept: Path, losses: Iterable[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for bench in TITLES:
        for loss in losses:
            file = kept / f"{bench}-{loss}.json"
            if file.exists():
                yield bench, loss, json.loads(file.read_text())


def _table(kept: Path, losses: Iterable[str], arms: tuple[str, str] = ("baseline", "iaa")) -> list[str]:
    """The second arm compared with the first, one row for each bench and loss."""
    rows = []
    for bench, loss, study in _comparisons(kept, losses):
        if not all(arm in study["summary"]["test"]["R@1"] for arm in arms):
            continue
        cells = [bench, loss, str(len(study["seeds"])), _untrained(study, metrics=("R@1",), digits=2)]
        for metric in ("R@1", "MAP@R"):
            scores = study["summary"]["test"][metric]
            gain = paired(*(scores[arm]["values"] for arm in arms))
            cells += [number(scores[arm]) for arm in arms]
            cells += [f"{gain.difference:+.2f}", p_value(gain.p_t)]
        rows.append(cells)
    head = ["data", "loss", "seeds", "untrained R@1"]
    head += [f"{metric} {column}" for metric in ("R@1", "MAP@R") for column in (*arms, "gain", "p")]
    return [*grid(head, rows)] if rows else []


def _score(study: dict[str, Any], metric: str, arm: str) -> float:
    return float(study["summary"]["test"][metric][arm]["mean"])


def _untrained(study: dict[str, Any], *, metrics: tuple[str, ...] = ("R@1", "MAP@R"), digits: int = 1) -> str:
    """Before any training, if it was measured: the pretrained network where there is one."""
    measured: dict[str, Any] = study["untrained"]
    name = next((name for name in measured if name.startswith("pretrained")), next(iter(measured), None))
    scores = measured[name]["test"] if name else {}
    return " / ".join(f"{scores[metric]:.{digits}f}" for metric in metrics if metric in scores)


def _ceiling() -> Iterator[str]:
    """From ceiling.json: IAA at three samples per class with better and better covariance estimates."""
    file = HERE / "ceiling.json"
    if not file.exists():
        return
    rows = []
    for loss, scores in json.loads(file.read_text())["losses"].items():
        for name in (name for name in scores if name.startswith("uncorrected")):
            strength = name.partition(", ")[2]
            cells = [loss, strength, f"{mean(scores['baseline, 0']):.2f}"]
            cells += [f"{mean(scores[f'{source}, {strength}']):.2f}" for source in SOURCES]
            gain = paired(scores[name], scores[f"corrected, {strength}"])
            rows.append([*cells, f"{gain.difference:+.2f}", p_value(gain.p_t)])
    yield CEILING
    yield from grid(["loss", "strength", "baseline", *SOURCES, "corrected - uncorrected", "p"], rows)


def _hardness() -> Iterator[str]:
    """From hardness.json: how close synthetic candidates come, compared with real ones."""
    file = HERE / "hardness.json"
    if not file.exists():
        return
    yield HARDNESS
    measured = json.loads(file.read_text())["rows"]
    covariance, strength, share, *distances = measured[0]
    rows = [
        [row[covariance], f"{row[strength]:g}", f"{100 * row[share]:.1f} %"]
        + [f"{row[distance]:.3f}" for distance in distances]
        for row in measured
    ]
    yield from grid([*measured[0]], rows)


def _bench_of(study: str) -> str:
    """The longest name that fits: cub-head-triplet belongs to cub-head, not to cub."""
    return max((bench for bench in TITLES if study.startswith(f"{bench}-")), key=len)


def write() -> None:
    """All pages, and README's table."""
    for path, text in pages().items():
        (DOCS / path).write_text(text)
    README.write_text(readme(README.read_text()))


if __name__ == "__main__":
    write()
