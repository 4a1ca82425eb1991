"""Ways to make synthetics side by side, tuned with equal care: docs/results/generators.md.

python benchmarks/generator_table.py [bench …] [--losses …] [--cub DIR-OR-TAR] [--jobs 2]

Every generator gets what IAA got in tuning.py: at the baseline's learning rate first its own parameter, then
the margin of the loss, then whether own copies are positives, chosen by MAP@R on held-out training classes.
The test classes are scored once, by `iaa compare`, with all arms over equal seeds. On emoji everything is
computed in bf16, and trials have half of the epochs. Goes on where it stopped.
"""

import json
import shutil
from statistics import mean
from typing import Any

from measurement import HERE, environment, write
from results import DUPLICATES, SEEDS, _arm, _options
from results_generators import BENCHES
from results_pages import KEPT
from results_pages import write as write_pages
from studies import LOSSES, RUNS, fields_of, parser, prepare
from tuning import GRIDS, margins_of, told, trials

from iaa.cli import main as iaa

GENERATORS: dict[str, tuple[str, tuple[float, ...]]] = {
    "symmetry": ("", ()),
    "expansion": ("", ()),
    "proxy": ("augment.mix", (0.2, 0.4, 1.0, 2.0)),
    "mixup": ("augment.mix", (0.2, 0.5, 1.0, 2.0)),
    "residual": ("augment.strength", (0.2, 0.4, 0.8, 1.6)),
    "spread": ("augment.strength", (0.2, 0.4, 0.6, 0.8)),
}
"""By name: its parameter and the values that are tried."""
FIELDS: dict[str, dict[str, Any]] = {"emoji": {"precision": "bf16"}}
"""What all runs of a bench have: bf16 takes three fifths of the time of the small network's steps."""
SHORTER: dict[str, dict[str, Any]] = {"emoji": {"epochs": 10}}
"""What trials have in addition: half of the epochs tell which parameter is better."""


def tune(bench: str, loss: str, generator: str, tuned: dict[str, Any], jobs: int) -> dict[str, Any]:
    """The parameter, the margin and own copies of one generator, in turns."""
    parameter, values = GENERATORS[generator]
    margin, margins = margins_of(bench, loss)
    tried: dict[str, list[float]] = {}

    def best(arms: dict[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
        extra = FIELDS.get(bench, {}) | SHORTER.get(bench, {})
        scores = trials(bench, loss, {at: arm | extra for at, arm in arms.items()}, GRIDS[bench], jobs)
        tried.update(scores)
        name = max(scores, key=lambda name: mean(scores[name]))
        return name, arms[name]

    start = tuned["baseline_chosen"] | {"augment.generator": generator, "augment.own_copies": False}
    plain = {f"{generator}-{value:g}": {**start, parameter: value} for value in values}
    name, chosen = best(plain or {generator: start})
    wider = {f"{name}-margin-{value:g}": {**chosen, "loss_options": {margin: value}} for value in margins}
    name, chosen = best({name: chosen} | {other: arm for other, arm in wider.items() if arm != chosen})
    name, chosen = best({name: chosen, f"{name}-own-copies": {**chosen, "augment.own_copies": True}})
    return {"chosen": chosen, "trials": told(tried)}


def compare(bench: str, loss: str, tuned: dict[str, Any], chosen: dict[str, Any], jobs: int) -> None:
    """Baseline, duplicates, IAA and all generators on the test classes, over equal seeds."""
    out = RUNS / f"generators-{bench}-{loss}"
    basis = tuned["chosen"]
    arms = [_arm("baseline", tuned["baseline_chosen"] | {"augment.copies": 0}, basis), DUPLICATES]
    arms += [_arm(generator, fields["chosen"], basis) for generator, fields in chosen.items()]
    options = _options(fields_of(bench, loss) | FIELDS.get(bench, {}) | basis)
    words = ["compare", *options, "--seeds", str(SEEDS[bench])]
    words += [word for arm in arms for word in ("--arm", arm)]
    if iaa([*words, "--jobs", str(jobs), "--out", str(out)]):
        raise SystemExit(f"{out} failed; the same command goes on where it was")
    for file in out.glob("comparison.*"):
        shutil.copy(file, KEPT / f"generators-{bench}-{loss}{file.suffix}")


def main() -> None:
    known = parser(__doc__, BENCHES)
    known.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    words = known.parse_args()
    file = HERE / "generators.json"
    result = json.loads(file.read_text()) if file.exists() else {}
    all_tuned = json.loads((HERE / "tuning.json").read_text())
    for bench in words.names or BENCHES:
        prepare(bench, words.cub)
        for loss in words.losses:
            tuned = all_tuned[bench][loss]
            chosen = result.setdefault(bench, {}).setdefault(loss, {})
            for generator in GENERATORS:
                if generator not in chosen:
                    chosen[generator] = tune(bench, loss, generator, tuned, words.jobs)
                    write("generators", result | environment("torch", "pytorch-metric-learning"))
            compare(bench, loss, tuned, chosen, words.jobs)
            write_pages()


if __name__ == "__main__":
    main()
