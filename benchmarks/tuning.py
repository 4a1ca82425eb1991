"""Learning rate and strength for the results, chosen on held-out training classes, never on test classes.

python benchmarks/tuning.py [bench …] [--losses …] [--cub DIR-OR-TAR] [--jobs 2]   benches: cub-head emoji cub

First the learning rate, by the baseline alone, then the strength at that rate: as many trials for the
baseline as for IAA, and in doubt in the baseline's favour. What counts is MAP@R on a third of the training
classes after the last epoch, averaged over seeds, each of which holds out other classes. Goes on where it
was stopped; writes tuning.json.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from studies import BENCHES, LOSSES, fields_of, parser, prepare
from surroundings import HERE, surroundings, write

from iaa.cli.arms import changed, train_arms
from iaa.config import Config

RUNS = Path("runs") / "tuning"
METRIC = "MAP@R"


@dataclass(frozen=True)
class Grid:
    """What is tried."""

    rates: tuple[float, ...]
    strengths: tuple[float, ...]
    seeds: tuple[int, ...]
    fixed: dict[str, Any] = field(default_factory=dict)


GRIDS = {
    "cub-head": Grid((3e-5, 1e-4, 3e-4, 1e-3), (0.2, 0.4, 0.8, 1.6), (0, 1, 2)),
    "emoji": Grid((3e-4, 1e-3, 3e-3), (0.05, 0.2, 0.8), (0, 1)),
    "cub": Grid((3e-5, 1e-4), (0.2, 0.8), (0,)),
}


def trials(
    bench: str, loss: str, arms: dict[str, dict[str, Any]], grid: Grid, jobs: int
) -> dict[str, list[float]]:
    """The scores of every arm on the held-out classes, seed by seed."""
    basis = changed(
        Config(),
        fields_of(bench, loss)
        | {
            "split.val_classes": 1 / 3,
            "run.untrained": False,
            "run.logger": "none",
            "run.validate_every": 1000,
        },
    )
    configs = {name: changed(basis, fields) for name, fields in arms.items()}
    home = RUNS / f"{bench}-{loss}"
    folders = train_arms(home, configs, list(grid.seeds), quiet=False, jobs=jobs)
    return {name: [held_out(folder) for folder in runs.values()] for name, runs in folders.items()}


def held_out(run: Path) -> float:
    """The last score on the held-out classes in a run's log."""
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return float([row["val"][METRIC] for row in rows if "val" in row][-1])


def told(scores: dict[str, list[float]]) -> dict[str, Any]:
    return {
        name: {
            "mean": mean(values),
            "deviation": stdev(values) if len(values) > 1 else None,
            "values": values,
        }
        for name, values in scores.items()
    }


def tune(bench: str, loss: str, jobs: int) -> dict[str, Any]:
    """Both stages of one loss."""
    grid = GRIDS[bench]
    rates = {f"rate-{rate:g}": {"optimizer.lr": rate, "augment.copies": 0} for rate in grid.rates}
    baseline = trials(bench, loss, rates, grid, jobs)
    rate = rates[max(baseline, key=lambda name: mean(baseline[name]))]["optimizer.lr"]
    strengths = {
        f"strength-{strength:g}": {"optimizer.lr": rate, "augment.strength": strength}
        for strength in grid.strengths
    }
    boosted = trials(bench, loss, strengths, grid, jobs)
    best = max(boosted, key=lambda name: mean(boosted[name]))
    return {
        "metric": f"{METRIC} on held-out training classes, seeds {', '.join(map(str, grid.seeds))}",
        "baseline": told(baseline),
        "iaa": told(boosted),
        "chosen": strengths[best],
        **surroundings("torch", "pytorch-metric-learning"),
    }


def main() -> None:
    known = parser(__doc__, BENCHES)
    known.add_argument("--losses", nargs="+", choices=LOSSES, default=LOSSES)
    words = known.parse_args()
    former = HERE / "tuning.json"
    result = json.loads(former.read_text()) if former.exists() else {}
    for bench in words.names or BENCHES:
        prepare(bench, words.cub)
        for loss in words.losses:
            result.setdefault(bench, {})[loss] = tune(bench, loss, words.jobs)
            print(json.dumps({bench: {loss: result[bench][loss]["chosen"]}}))
            write("tuning", result)


if __name__ == "__main__":
    main()
