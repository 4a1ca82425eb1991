"""The results pages and README's table, written from the files that benchmarks/results.py keeps.

python benchmarks/results_pages.py
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

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
    TITLES,
)
from studies import FURTHER, LOSSES
from surroundings import HERE
from tuning import MARGINS, USUAL, margins_of

from iaa.analysis.paired_tests import paired

DOCS = HERE.parent / "docs"
KEPT = DOCS / "results"
README = HERE.parent / "README.md"
MAIN = ("default", *LOSSES)
MARKS = "<!-- results -->", "<!-- end of results -->"
"""README's table stands between these."""
PLUS = "\u00a0±\u00a0"
"""With spaces at which no line breaks."""
SOURCES = ("uncorrected", "corrected", "all samples")


def pages(kept: Path = KEPT) -> dict[str, str]:
    """Every page by its path below docs/."""
    return {
        "results.md": "\n".join([LADDER, *_ladder(kept), LEGEND]),
        "results/losses.md": "\n".join([LOSSES_PAGE, *_losses(kept)]),
        "results/correction.md": "\n".join([CORRECTION, *_correction(kept)]),
        "results/ablations.md": "\n".join([ABLATIONS, *_ablations(kept)]),
        "results/choices.md": "\n".join([CHOICES, *_choices()]),
    }


def readme(text: str, kept: Path = KEPT) -> str:
    """README with the short table between its two marks."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n" + "\n".join(_ladder(kept)) + f"{MARKS[1]}{after}"


def _ladder(kept: Path) -> Iterator[str]:
    """Untrained, trained, and trained with IAA: one row for each data set, with the default loss."""
    rows = []
    for bench, _, study in _comparisons(kept, LOSSES[:1]):
        cells = (
            " / ".join(f"{_score(study, metric, arm):.1f}" for metric in ("R@1", "MAP@R"))
            for arm in ("baseline", "iaa")
        )
        rows.append([TITLES[bench], _untrained(study), *cells, str(len(study["seeds"]))])
    yield from _grid(["R@1 / MAP@R", "untrained", "trained", "trained + IAA", "seeds"], rows)


def _losses(kept: Path) -> Iterator[str]:
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
            cells += [_number(scores[arm]) for arm in arms]
            cells += [f"{gain.difference:+.2f}", _p(gain.p_t)]
        rows.append(cells)
    head = ["data", "loss", "seeds", "untrained R@1"]
    head += [f"{metric} {column}" for metric in ("R@1", "MAP@R") for column in (*arms, "gain", "p")]
    return [*_grid(head, rows)] if rows else []


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
            rows.append([*cells, f"{gain.difference:+.2f}", _p(gain.p_t)])
    yield CEILING
    yield from _grid(["loss", "strength", "baseline", *SOURCES, "corrected - uncorrected", "p"], rows)


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
    yield from _grid([*measured[0]], rows)


def _choices() -> Iterator[str]:
    """From tuning.json, in two or three tables."""
    tuned = json.loads((HERE / "tuning.json").read_text())
    rows, changes, names = [], [], list[str]()
    for bench, losses in tuned.items():
        for loss, study in losses.items():
            row = [bench, loss]
            for kind, chosen in (("baseline", "baseline_chosen"), ("iaa", "chosen")):
                tried = study.get(kind, {})
                best = max((trial["mean"] for trial in tried.values()), default=float("nan"))
                row += [_short(study[chosen]), str(len(tried)), f"{best:.2f}" if tried else ""]
            rows.append(row)
            if "alternatives" in study:
                names = [*study["alternatives"]]
                gains = (f"{trial['mean'] - best:+.2f}" for trial in study["alternatives"].values())
                changes.append([bench, loss, *gains])
    if not rows:
        return
    head = ["data", "loss"]
    head += [
        f"{kind}{column}" for kind in ("baseline", "IAA") for column in (" chosen", ", trials", ", MAP@R")
    ]
    yield from _grid(head, rows)
    yield "## The same margin for both\n"
    yield "Trials in which both used the same margin; IAA at its chosen strength, before own copies.\n"
    yield from _grid(["data", "loss", "margin", "baseline", "IAA", "gain"], [*_margins(tuned)])
    if changes:
        yield "## Single changes\n"
        yield "Changes of that MAP@R when one option of the chosen IAA changes. None of them was adopted.\n"
        yield from _grid(["data", "loss", *names], changes)


def _margins(tuned: dict[str, Any]) -> Iterator[list[str]]:
    """Baseline and IAA at every margin that both have tried."""
    for bench, losses in tuned.items():
        for loss in MARGINS:
            name, values = margins_of(bench, loss)
            if "iaa" not in (study := losses.get(loss, {})):
                continue
            begun = {"baseline": USUAL[name], "iaa": study["baseline_chosen"]["loss_options"][name]}
            first = {
                "baseline": f"rate-{study['chosen']['optimizer.lr']:g}",
                "iaa": f"strength-{study['chosen']['augment.strength']:g}",
            }
            for value in values:
                trials = {
                    kind: first[kind] if value == begun[kind] else f"{further}margin-{value:g}"
                    for kind, further in (("baseline", ""), ("iaa", "iaa-"))
                }
                if all(trial in study[kind] for kind, trial in trials.items()):
                    plain, boosted = (study[kind][trial]["mean"] for kind, trial in trials.items())
                    gain = f"{boosted - plain:+.2f}"
                    yield [bench, loss, f"{name} {value:g}", f"{plain:.2f}", f"{boosted:.2f}", gain]


def _short(fields: dict[str, Any]) -> str:
    flat = {key: value for key, value in fields.items() if not isinstance(value, dict)}
    flat |= fields.get("loss_options", {})
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in flat.items())


def _bench_of(study: str) -> str:
    """The longest name that fits: cub-head-triplet belongs to cub-head, not to cub."""
    return max((bench for bench in TITLES if study.startswith(f"{bench}-")), key=len)


def _number(score: dict[str, Any]) -> str:
    return f"{score['mean']:.2f}" + ("" if score["deviation"] is None else f"{PLUS}{score['deviation']:.2f}")


def _p(value: float | None) -> str:
    return "" if value is None else "<\u00a00.001" if value < 0.001 else f"{value:.3f}"


def _grid(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield from (_line(head), _line(["---"] * len(head)), *map(_line, rows), "")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write() -> None:
    """All pages, and README's table."""
    for path, text in pages().items():
        (DOCS / path).write_text(text)
    README.write_text(readme(README.read_text()))


if __name__ == "__main__":
    write()
