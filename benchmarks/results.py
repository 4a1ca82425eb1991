"""docs/results.md: every number from a command that this script runs.

python benchmarks/results.py [study …] [--cub DIR-OR-TAR] [--jobs 2] [--list] [--write]

Without names, all studies whose outcome is not in docs/results/ yet and whose learning rate and strength
have been chosen (benchmarks/tuning.py). What was stopped goes on where it was. Runs stay in runs/results/;
their tables, the numbers of every seed, commit and versions go to docs/results/, from which the page is
written (--write does only that).
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import mean
from typing import Any

from studies import BENCHES, FURTHER, LOSSES, RUNS, TUNED_AS, VECTORS, fields_of, parser, prepare
from surroundings import HERE
from tuning import MARGINS, USUAL, margins_of

from iaa.analysis.paired_tests import paired
from iaa.cli import main as iaa
from iaa.config import Config

KEPT = HERE.parent / "docs" / "results"
PAGE = HERE.parent / "docs" / "results.md"
README = HERE.parent / "README.md"
TITLES = {
    "cub-head": "CUB-200-2011, a linear head on a frozen Lite0",
    "cub-head-3": "The same with three samples of every class",
    "emoji": "emoji, a small network from scratch",
    "cub": "CUB-200-2011, Lite0 trained whole at 112 px, four epochs",
    "cub-long": "The same, eight epochs",
}
SWEEPS = {
    "cub-head": ("few-estimates", "components", "strength", "copies"),
    "cub-head-3": ("components", "strength", "neighbors"),
}
"""With multi-similarity; classes of more than 40 samples have no neighbours that lend."""
FIVE = ("--seeds", "5")
MAIN = ("default", *LOSSES)
MARKS = "<!-- results -->", "<!-- end of results -->"
"""Between these in README stands the main table."""
SEEDS = {"cub-head": 10, "cub-head-3": 10, "emoji": 5, "cub": 3, "cub-long": 3}
DUPLICATES = "duplicates: augment.strength=0.0"
"""Copies without noise."""
ARMS = {
    "cub-head": ("full: augment.covariance=full", "fixed: augment.around=mean", DUPLICATES),
    "cub-head-3": (DUPLICATES,),
    "emoji": ("no-correction: augment.correction=False", DUPLICATES),
}
"""Beside baseline and IAA."""


@dataclass(frozen=True)
class Study:
    """One command of iaa, without where it writes to."""

    bench: str
    words: tuple[str, ...]


def studies() -> dict[str, Study]:
    """All that can be run, cheapest first."""
    file = HERE / "tuning.json"
    tuned = json.loads(file.read_text()) if file.exists() else {}
    found: dict[str, Study] = {}
    for bench in BENCHES:
        for loss in (*LOSSES, *FURTHER):
            choices = tuned.get(TUNED_AS.get(bench, bench), {}) | tuned.get(bench, {})
            if loss not in choices:
                continue
            one = choices[loss]
            options = [*_options(fields_of(bench, loss) | one["chosen"])]
            arms = ARMS.get(bench, ()) if loss in LOSSES else ()
            if one["baseline_chosen"].get("loss_options") != one["chosen"].get("loss_options"):
                arms = (_arm("baseline", one["baseline_chosen"], one["chosen"]), *arms)
            if "uncorrected" in one:
                arms = (*arms, _arm("no-correction", one["uncorrected"], one["chosen"]))
            seeds = ("--seeds", str(SEEDS[bench])) if loss in LOSSES else FIVE
            words = ["compare", *options, *seeds, *(word for arm in arms for word in ("--arm", arm))]
            found[f"{bench}-{loss}"] = Study(bench, tuple(words))
            if bench == "cub-head" and loss in LOSSES:
                found[f"{bench}-few-samples-{loss}"] = Study(
                    bench, ("ablate", "few-samples", *options, *FIVE)
                )
            for name in SWEEPS.get(bench, ()) if loss == LOSSES[0] else ():
                found[f"{bench}-{name}"] = Study(bench, ("ablate", name, *options, *FIVE))
    found["emoji-default"] = Study("emoji", ("compare", "emoji", "--seeds", "3", "--arm", DUPLICATES))
    found["cub-correlation"] = Study("cub-head", ("analyze", "correlation", str(VECTORS)))
    emoji = sorted(RUNS.glob("emoji-*/iaa-seed0-*"))
    if emoji:
        found["emoji-correlation"] = Study("emoji", ("analyze", "correlation", str(emoji[0])))
    return found


def _arm(name: str, fields: dict[str, Any], basis: dict[str, Any]) -> str:
    """An arm by what differs from the basis."""
    changes = (f"{field}={value}" for field, value in fields.items() if basis.get(field) != value)
    return f"{name}: {', '.join(changes)}"


def _options(fields: dict[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield f"--{name.replace('_', '-')}"
            yield from (str(part) for pair in value.items() for part in pair)
        elif isinstance(attrgetter(name)(Config()), bool):
            *groups, last = name.replace("_", "-").split(".")
            yield "--" + ".".join([*groups, last if value else f"no-{last}"])
        else:
            yield from (f"--{name.replace('_', '-')}", str(value))


def run(name: str, study: Study, jobs: int) -> None:
    """Carry out one study and keep what it wrote."""
    out = RUNS / name
    spread = ["--jobs", str(jobs)] if study.words[0] != "analyze" else []
    if iaa([*study.words, *spread, "--out", str(out)]):
        raise SystemExit(f"{name} failed; the same command goes on where it was")
    KEPT.mkdir(parents=True, exist_ok=True)
    kinds = {"compare": "comparison", "ablate": "ablation", "analyze": "correlation"}
    for file in out.glob(f"{kinds[study.words[0]]}.*"):
        shutil.copy(file, KEPT / f"{name}{file.suffix}")


def page(kept: Path = KEPT) -> str:
    """docs/results.md from the files in docs/results."""
    text = [INTRODUCTION, *_table(kept, MAIN), UNTRAINED]
    for title, told, table in (
        ("Correction against none", "", _table(kept, MAIN, ("no-correction", "iaa"))),
        ("Noise against duplicates", COPIES_ALONE, _table(kept, MAIN, ("duplicates", "iaa"))),
        ("Further losses", "", _table(kept, FURTHER)),
    ):
        text += [f"## {title}\n", *([told] if told else ()), *table] if table else []
    text += [*_ceiling(), *_hardness()]
    for bench, title in TITLES.items():
        sections = [*_sections(kept, bench)]
        if sections:
            text += [f"## {title}\n", *sections]
    coefficients = [*_correlations(kept)]
    if coefficients:
        text += ["## Do similar classes vary alike?\n", *coefficients]
    text += _choices()
    return "\n".join(text)


INTRODUCTION = """# Results

Every number here was written by a command (`make results`, that is `benchmarks/results.py`) from the files
in [results/](results), which hold the scores of every seed, the command, the commit and the versions, and
from `ceiling.json`, `hardness.json` and `tuning.json` in `benchmarks/`. Baseline and IAA share seeds, and so
first weights, batches and budget; the last epoch is reported. Learning rate, margin, strength and own copies
are chosen on held-out training classes by `benchmarks/tuning.py`, for the further losses all but the margin;
the end of this page shows how. `cub` has a rate of its own, tried with multi-similarity, and the rest as its
head chose it; `cub-long` is `cub` for longer, its triplet loss with choices of its own. In ablations all arms
share the options chosen for IAA, margin included, so their baseline is not the tuned one of the first table.
Percent on unseen classes, mean ± standard deviation over seeds; p of a paired t-test over seeds. No study is
left out for its outcome.
"""


LEGEND = """\\* p < 0.05, paired t-test over seeds. cub-head: a linear head on frozen Lite0 features
of CUB-200-2011 (photos of 160 px), -3 with three samples of every class. cub: Lite0 trained whole, at 112 px,
for four epochs, which is too few, -long for eight, beyond which the baseline gained nothing on held-out
classes (multi-similarity, one seed); its rate was tuned for the baseline of that loss, margins and strengths
are those of cub-head, save for the triplet loss of cub-long, which has its own. default: as
`iaa compare emoji` runs it, multi-similarity with its usual parameters. Elsewhere baseline and IAA have each
been tuned on held-out training classes. untrained: the frozen features as they are, raw pixels on emoji.
"""
UNTRAINED = """untrained: the frozen network, or raw pixels where the network starts from nothing. default: as
`iaa compare emoji` runs it, multi-similarity with its usual parameters.
"""


COPIES_ALONE = """duplicates: as many copies, without noise. What IAA is ahead of them is what the noise
brings; what they are ahead of the baseline comes of more pairs alone, or of a margin that was tuned for IAA.
"""
SOURCES = ("uncorrected", "corrected", "all samples")
CEILING = """Heads trained on three samples of every class of cub-head, full covariances: own, corrected, and,
as no method can, those of all samples of a class. MAP@R on a third of the *training* classes, held out, mean
of ten seeds (`benchmarks/ceiling.py`).
"""
HARDNESS = """Frozen Lite0 vectors of CUB's training classes in batches as training draws them, 32 classes of
four samples, three copies of each: how often the nearest negative of a sample is synthetic (three quarters of
the candidates are), and mean distances at unit length (`benchmarks/hardness.py`).
"""


def readme(text: str, kept: Path = KEPT) -> str:
    """README with the main table between its two marks."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n" + "\n".join(_short(kept)) + f"{MARKS[1]}{after}"


def _short(kept: Path) -> Iterator[str]:
    """The main table in few columns."""
    rows = []
    for bench, loss, found in _comparisons(kept, MAIN):
        cells = [bench, loss, _untrained(found, digits=1)]
        for metric in ("R@1", "MAP@R"):
            scores = found["summary"]["test"][metric]
            gain = paired(scores["baseline"]["values"], scores["iaa"]["values"])
            star = "\\*" if gain.p_t is not None and gain.p_t < 0.05 else ""
            means = " → ".join(f"{scores[arm]['mean']:.1f}" for arm in ("baseline", "iaa"))
            cells.append(f"{means} ({gain.difference:+.1f}{star})")
        rows.append(cells)
    yield from _grid(["data", "loss", "untrained R@1", "R@1, baseline → IAA", "MAP@R, baseline → IAA"], rows)
    yield LEGEND
    yield from _copies_alone(kept)


def _copies_alone(kept: Path) -> Iterator[str]:
    """What of the embedded default's gain needs no noise."""
    file = kept / "emoji-default.json"
    scores = json.loads(file.read_text())["summary"]["test"] if file.exists() else {}
    if all("duplicates" in scores.get(metric, {}) for metric in ("R@1", "MAP@R")):
        told = (f"{metric} {scores[metric]['duplicates']['mean']:.1f}" for metric in ("R@1", "MAP@R"))
        yield f"emoji, default: copies without any noise, as a control, reach {' and '.join(told)}.\n"


def _comparisons(kept: Path, losses: Iterable[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for bench in TITLES:
        for loss in losses:
            file = kept / f"{bench}-{loss}.json"
            if file.exists():
                yield bench, loss, json.loads(file.read_text())


def _table(kept: Path, losses: Iterable[str], arms: tuple[str, str] = ("baseline", "iaa")) -> list[str]:
    """The second arm against the first, a line for each bench and loss."""
    rows = []
    for bench, loss, found in _comparisons(kept, losses):
        if not all(arm in found["summary"]["test"]["R@1"] for arm in arms):
            continue
        cells = [bench, loss, str(len(found["seeds"])), _untrained(found, digits=2)]
        for metric in ("R@1", "MAP@R"):
            scores = found["summary"]["test"][metric]
            gain = paired(*(scores[arm]["values"] for arm in arms))
            cells += [_number(scores[arm]) for arm in arms]
            cells += [f"{gain.difference:+.2f}", _p(gain.p_t)]
        rows.append(cells)
    head = ["data", "loss", "seeds", "untrained R@1"]
    head += [f"{metric} {column}" for metric in ("R@1", "MAP@R") for column in (*arms, "gain", "p")]
    return [*_grid(head, rows)] if rows else []


def _untrained(found: dict[str, Any], *, digits: int) -> str:
    """R@1 before any training, if it was measured: of the pretrained network where there is one."""
    measured: dict[str, Any] = found["untrained"]
    name = next((name for name in measured if name.startswith("pretrained")), next(iter(measured), None))
    return f"{measured[name]['test']['R@1']:.{digits}f}" if name else ""


def _grid(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield from (_line(head), _line(["---"] * len(head)), *map(_line, rows), "")


def _sections(kept: Path, bench: str) -> Iterator[str]:
    for file in sorted(kept.glob(f"{bench}-*.md")):
        if file.stem.endswith("-correlation") or _bench_of(file.stem) != bench:
            continue
        title, _, body = file.read_text().partition("\n")
        yield f"### {file.stem.removeprefix(bench + '-')}: {title.removeprefix('# ')}\n{body}"
        figure = file.with_suffix(".svg")
        if figure.exists():
            yield f"![{file.stem}](results/{figure.name})\n"


def _ceiling() -> Iterator[str]:
    """What ceiling.json says: IAA at three samples per class, estimates from better and better sources."""
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
    yield "## How much could better covariances bring?\n"
    yield CEILING
    yield from _grid(["loss", "strength", "baseline", *SOURCES, "corrected - uncorrected", "p"], rows)


def _hardness() -> Iterator[str]:
    """What hardness.json says: how near synthetic candidates come, beside real ones."""
    file = HERE / "hardness.json"
    if not file.exists():
        return
    yield "## How hard are synthetics?\n"
    yield HARDNESS
    found = json.loads(file.read_text())["rows"]
    covariance, strength, share, *distances = found[0]
    rows = [
        [one[covariance], f"{one[strength]:g}", f"{100 * one[share]:.1f} %"]
        + [f"{one[distance]:.3f}" for distance in distances]
        for one in found
    ]
    yield from _grid([*found[0]], rows)


def _choices() -> Iterator[str]:
    """What tuning.json says, in two tables."""
    tuned = json.loads((HERE / "tuning.json").read_text())
    rows, changes, names = [], [], list[str]()
    for bench, losses in tuned.items():
        for loss, one in losses.items():
            row = [bench, loss]
            for kind, chosen in (("baseline", "baseline_chosen"), ("iaa", "chosen")):
                tried = one.get(kind, {})
                best = max((trial["mean"] for trial in tried.values()), default=float("nan"))
                row += [_told(one[chosen]), str(len(tried)), f"{best:.2f}" if tried else ""]
            rows.append(row)
            if "alternatives" in one:
                names = [*one["alternatives"]]
                gains = (f"{trial['mean'] - best:+.2f}" for trial in one["alternatives"].values())
                changes.append([bench, loss, *gains])
    if not rows:
        return
    yield "## How parameters were chosen\n"
    yield "MAP@R on a third of the training classes, held out; all trials are in `benchmarks/tuning.json`.\n"
    head = ["data", "loss"]
    head += [
        f"{kind}{column}" for kind in ("baseline", "IAA") for column in (" chosen", ", trials", ", MAP@R")
    ]
    yield from _grid(head, rows)
    yield "Of these trials, those at equal margins, IAA at the strength chosen and before own copies:\n"
    yield from _grid(["data", "loss", "margin", "baseline", "IAA", "gain"], [*_margins(tuned)])
    if changes:
        yield "Single changes to the chosen IAA, as differences in that MAP@R; nothing was chosen by them.\n"
        yield from _grid(["data", "loss", *names], changes)


def _margins(tuned: dict[str, Any]) -> Iterator[list[str]]:
    """Baseline and IAA at every margin that both have tried."""
    for bench, losses in tuned.items():
        for loss in MARGINS:
            name, values = margins_of(bench, loss)
            if "iaa" not in (one := losses.get(loss, {})):
                continue
            begun = {"baseline": USUAL[name], "iaa": one["baseline_chosen"]["loss_options"][name]}
            first = {
                "baseline": f"rate-{one['chosen']['optimizer.lr']:g}",
                "iaa": f"strength-{one['chosen']['augment.strength']:g}",
            }
            for value in values:
                trials = {
                    kind: first[kind] if value == begun[kind] else f"{further}margin-{value:g}"
                    for kind, further in (("baseline", ""), ("iaa", "iaa-"))
                }
                if all(trial in one[kind] for kind, trial in trials.items()):
                    plain, boosted = (one[kind][trial]["mean"] for kind, trial in trials.items())
                    gain = f"{boosted - plain:+.2f}"
                    yield [bench, loss, f"{name} {value:g}", f"{plain:.2f}", f"{boosted:.2f}", gain]


def _told(fields: dict[str, Any]) -> str:
    """Chosen fields in short."""
    flat = {key: value for key, value in fields.items() if not isinstance(value, dict)}
    flat |= fields.get("loss_options", {})
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in flat.items())


def _bench_of(study: str) -> str:
    """The longest name that fits: cub-head-triplet is of cub-head, not of cub."""
    return max((bench for bench in TITLES if study.startswith(f"{bench}-")), key=len)


def _correlations(kept: Path) -> Iterator[str]:
    for file in sorted(kept.glob("*-correlation.md")):
        yield f"### {file.stem.removesuffix('-correlation')}\n\n{file.read_text()}"


def _number(one: dict[str, Any]) -> str:
    return f"{one['mean']:.2f}" + ("" if one["deviation"] is None else f" ± {one['deviation']:.2f}")


def _p(value: float | None) -> str:
    return "" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    known = studies()
    words = parser(__doc__, known)
    words.add_argument("--list", action="store_true", help="name all studies, and whether they are done")
    words.add_argument("--write", action="store_true", help="only write the page")
    given = words.parse_args()
    done = {name for name in known if (KEPT / f"{name}.json").exists()}
    if given.list:
        print("\n".join(f"{'done' if name in done else '    '}  {name}" for name in known))
        return
    for name in () if given.write else given.names or [name for name in known if name not in done]:
        prepare(known[name].bench, given.cub)
        run(name, known[name], given.jobs)
        _write()
    _write()


def _write() -> None:
    PAGE.write_text(page())
    README.write_text(readme(README.read_text()))


if __name__ == "__main__":
    main()
