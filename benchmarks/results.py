"""The results pages of the documentation: every number comes from a command that this script runs.

python benchmarks/results.py [study …] [--cub DIR-OR-TAR] [--jobs 2] [--list] [--write]

Without names, it runs every study that has no result in docs/results/ yet and whose learning rate and
strength have been chosen (benchmarks/tuning.py). Interrupted studies continue where they stopped. Runs stay
in runs/results/; their tables, the numbers of every seed, commit and versions go to docs/results/, and
results_pages.py writes the pages and README's table from there (--write does only that).
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from measurement import HERE
from results_pages import KEPT, write
from studies import BENCHES, FURTHER, LOSSES, RUNS, TUNED_AS, VECTORS, fields_of, parser, prepare

from iaa.cli import main as iaa
from iaa.config import Config

SWEEPS = {
    "cub-head": ("few-estimates", "components", "strength", "copies"),
    "cub-head-3": ("components", "strength", "neighbors"),
}
"""With multi-similarity; classes of more than 40 samples borrow nothing, so no sweep of neighbors."""
FIVE = ("--seeds", "5")
SEEDS = {"cub-head": 10, "cub-head-3": 10, "emoji": 5, "cub": 3, "cub-long": 3}
DUPLICATES = "duplicates: augment.strength=0.0"
"""Copies without noise."""
ARMS = {
    "cub-head": ("full: augment.covariance=full", "fixed: augment.around=mean", DUPLICATES),
    "cub-head-3": (DUPLICATES,),
    "emoji": ("no-correction: augment.correction=False", DUPLICATES),
}
"""In addition to baseline and IAA."""


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


def main() -> None:
    known = studies()
    words = parser(__doc__, known)
    words.add_argument("--list", action="store_true", help="name all studies, and whether they are done")
    words.add_argument("--write", action="store_true", help="only write the pages")
    given = words.parse_args()
    done = {name for name in known if (KEPT / f"{name}.json").exists()}
    if given.list:
        print("\n".join(f"{'done' if name in done else '    '}  {name}" for name in known))
        return
    for name in () if given.write else given.names or [name for name in known if name not in done]:
        prepare(known[name].bench, given.cub)
        run(name, known[name], given.jobs)
        write()
    write()


if __name__ == "__main__":
    main()
