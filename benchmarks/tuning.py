"""Learning rate, margin and strength for the results, chosen on held-out training classes alone.

python benchmarks/tuning.py [bench …] [--losses …] [--cub DIR-OR-TAR] [--jobs 2]

The baseline's learning rate and then its margin (the paper gives none); then, at that rate, IAA's strength,
its margin, and whether own copies are positives, which is a trial or two more, on emoji three. What counts is
MAP@R on a third of the training classes after the last epoch, averaged over seeds, each of which holds out
other classes. The network of `cub` is too slow for that: it takes over what its head alone has chosen, and
tries learning rates. The triplet loss, which that did not suit, has choices of its own in `cub-long`, tried
in as few epochs as `cub` has. Goes on where it was stopped; writes tuning.json.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from measurement import HERE, environment, write
from studies import FURTHER, LOSSES, fields_of, parser, prepare

from iaa.cli.config_options import changed
from iaa.cli.multirun import train_arms
from iaa.config import Config

RUNS = Path("runs") / "tuning"
METRIC = "MAP@R"


@dataclass(frozen=True)
class Grid:
    """What is tried."""

    rates: tuple[float, ...]
    strengths: tuple[float, ...]
    seeds: tuple[int, ...]
    uncorrected: bool = False
    """Whether IAA without correction gets a strength of its own."""
    alternatives: bool = False
    """Whether single changes are looked at as well."""
    losses: tuple[str, ...] = LOSSES
    """What is tuned."""
    wider: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """By loss: margins that are tried as well."""
    like: str | None = None
    """A bench whose margins, strengths and own copies are taken over; rates are tried with the first loss."""
    shorter: str | None = None
    """A bench of fewer epochs on which trials are made; IAA keeps the margin of the baseline there."""
    longer: tuple[int, ...] = ()
    """Epochs that the baseline at the chosen rate gets as well, to see what longer training would bring."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """What IAA has besides, untried."""


GRIDS = {
    "cub-head": Grid(
        (3e-5, 1e-4, 3e-4, 1e-3), (0.2, 0.4, 0.8, 1.6), (0, 1), alternatives=True, losses=(*LOSSES, *FURTHER)
    ),
    "cub-head-3": Grid(
        (3e-5, 1e-4, 3e-4, 1e-3), (0.2, 0.8, 2.0, 5.0, 12.0), (0, 1, 2, 3, 4), uncorrected=True
    ),
    "emoji": Grid((1e-3,), (0.05, 0.2, 0.8), (0,), wider={"multi_similarity": (1.0,)}),
    # in four epochs, statistics of every fourth would be those of an untrained head
    "cub": Grid(
        (1e-5, 3e-5, 1e-4), (), (0,), like="cub-head", longer=(8, 16), fixed={"augment.refresh_every": 1}
    ),
    # the rate is what `cub` chose
    "cub-long": Grid(
        *((3e-5,), (0.05, 0.2), (0,)),
        losses=("triplet",),
        wider={"triplet": (0.8,)},
        shorter="cub",
        fixed={"augment.refresh_every": 1},
    ),
}
MARGINS = {
    "multi_similarity": ("base", (0.5, 0.7, 0.85)),
    "contrastive": ("neg_margin", (0.2, 0.35, 0.5, 1.0)),
    "triplet": ("margin", (0.1, 0.2, 0.4)),
}
"""By loss: what decides which pairs still count, and values to try."""
ALTERNATIVES: dict[str, dict[str, Any]] = {
    "full-covariance": {"augment.covariance": "full"},
    "unit-space": {"augment.space": "unit"},
    "late-start": {"augment.start_epoch": 4},
    "fresh-statistics": {"augment.refresh_every": 1},
    "fading-strength": {"augment.strength_decay": 1.0},
    "one-copy": {"augment.copies": 1},
    "kernel-as-printed": {"augment.scale": "raw"},
    "no-correction": {"augment.correction": False},
}
"""Single changes to what was chosen, to learn from; nothing is chosen among them."""
USUAL = {"base": 0.5, "neg_margin": 1.0, "margin": 0.2}
"""The defaults of iaa.losses, with which learning rates are tried."""


def trials(
    bench: str, loss: str, arms: dict[str, dict[str, Any]], grid: Grid, jobs: int
) -> dict[str, list[float]]:
    """The scores of every arm on the held-out classes, seed by seed; further losses have one seed."""
    seeds = grid.seeds if loss in LOSSES else grid.seeds[:1]
    basis = changed(
        Config(),
        fields_of(grid.shorter or bench, loss)
        | {
            "split.val_classes": 1 / 3,
            "run.untrained": False,
            "run.logger": "none",
            "run.validate_every": 1000,
        },
    )
    configs = {name: changed(basis, fields) for name, fields in arms.items()}
    home = RUNS / f"{bench}-{loss}"
    folders = train_arms(home, configs, list(seeds), quiet=False, jobs=jobs)
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


def margins_of(bench: str, loss: str) -> tuple[str, tuple[float, ...]]:
    """The option that is a loss's margin and the values a bench tries; nothing for losses without."""
    name, values = MARGINS.get(loss, ("", ()))
    return name, (*values, *GRIDS[bench].wider.get(loss, ()))


def tune(bench: str, loss: str, jobs: int) -> dict[str, Any]:
    """All stages of one loss."""
    grid = GRIDS[bench]
    tried: dict[str, dict[str, list[float]]] = {}

    def best(kind: str, arms: dict[str, dict[str, Any]]) -> dict[str, Any]:
        scores = trials(bench, loss, arms, grid, jobs)
        tried[kind] = tried.get(kind, {}) | scores
        return arms[max(scores, key=lambda name: mean(scores[name]))]

    name, values = margins_of(bench, loss)
    usual = {"loss_options": {name: USUAL[name]}} if name else {}
    rates = {f"rate-{rate:g}": {**usual, "optimizer.lr": rate, "augment.copies": 0} for rate in grid.rates}
    baseline = best("baseline", rates) if len(rates) > 1 else next(iter(rates.values()))
    former = {f"rate-{baseline['optimizer.lr']:g}": baseline}
    margins = {f"margin-{value:g}": {**baseline, "loss_options": {name: value}} for value in values}
    baseline = best("baseline", former | {at: arm for at, arm in margins.items() if arm != baseline})
    shared = {key: value for key, value in baseline.items() if key != "augment.copies"}
    boosted = _boosted(best, grid, shared, name, values)
    chosen = {"chosen": boosted, "baseline_chosen": shared}
    if grid.alternatives and loss in LOSSES:
        best(
            "alternatives",
            {at.replace(" ", "-"): {**boosted, **fields} for at, fields in ALTERNATIVES.items()},
        )
    if grid.uncorrected:
        strengths = {
            f"uncorrected-{value:g}": {**boosted, "augment.strength": value, "augment.correction": False}
            for value in grid.strengths
        }
        chosen["uncorrected"] = best("without_correction", strengths)
    return {
        "metric": f"{METRIC} on held-out training classes, {len(next(iter(tried['iaa'].values())))} seeds",
        **chosen,
        **{kind: told(scores) for kind, scores in tried.items()},
        **environment("torch", "pytorch-metric-learning"),
    }


def _boosted(
    best: Callable[[str, dict[str, dict[str, Any]]], dict[str, Any]],
    grid: Grid,
    shared: dict[str, Any],
    name: str,
    margins: Iterable[float],
) -> dict[str, Any]:
    """The best strength, margin and own copies of IAA; a slow bench has the margin of its baseline."""
    strengths = {
        f"strength-{value:g}": {
            **shared,
            **grid.fixed,
            "augment.strength": value,
            "augment.own_copies": False,
        }
        for value in grid.strengths
    }
    if grid.shorter:
        own = {f"{at}-own-copies": {**arm, "augment.own_copies": True} for at, arm in strengths.items()}
        return best("iaa", strengths | own)
    boosted = best("iaa", strengths)
    former = {f"strength-{boosted['augment.strength']:g}": boosted}
    wider = {f"iaa-margin-{value:g}": {**boosted, "loss_options": {name: value}} for value in margins}
    boosted = best("iaa", former | {at: arm for at, arm in wider.items() if arm != boosted})
    at = next(at for at, arm in (former | wider).items() if arm == boosted)
    return best("iaa", {at: boosted, "own-copies": {**boosted, "augment.own_copies": True}})


def take_over(bench: str, loss: str, jobs: int, result: dict[str, Any]) -> dict[str, Any]:
    """What another bench has chosen, at a rate of this bench's own."""
    grid = GRIDS[bench]
    lent = {kind: result[grid.like][loss][kind] for kind in ("chosen", "baseline_chosen")}
    if loss != LOSSES[0]:
        rate, tried = result[bench][LOSSES[0]]["chosen"]["optimizer.lr"], {}
    else:
        arms = {
            f"rate-{rate:g}": {**lent["baseline_chosen"], "optimizer.lr": rate, "augment.copies": 0}
            for rate in grid.rates
        }
        scores = trials(bench, loss, arms, grid, jobs)
        best = max(scores, key=lambda name: mean(scores[name]))
        rate = arms[best]["optimizer.lr"]
        more = {f"{best}-epochs-{epochs}": {**arms[best], "epochs": epochs} for epochs in grid.longer}
        tried = {"baseline": told(scores), "longer": told(trials(bench, loss, more, grid, jobs))}
    return {
        "metric": f"{METRIC} on held-out training classes, {len(grid.seeds)} seeds",
        "like": grid.like,
        "chosen": {**lent["chosen"], "optimizer.lr": rate, **grid.fixed},
        "baseline_chosen": {**lent["baseline_chosen"], "optimizer.lr": rate},
        **tried,
        **environment("torch", "pytorch-metric-learning"),
    }


def main() -> None:
    known = parser(__doc__, GRIDS)
    known.add_argument("--losses", nargs="+", choices=(*LOSSES, *FURTHER))
    words = known.parse_args()
    former = HERE / "tuning.json"
    result = json.loads(former.read_text()) if former.exists() else {}
    for bench in words.names or GRIDS:
        prepare(bench, words.cub)
        for loss in words.losses or GRIDS[bench].losses:
            lent = GRIDS[bench].like
            found = take_over(bench, loss, words.jobs, result) if lent else tune(bench, loss, words.jobs)
            result.setdefault(bench, {})[loss] = found
            print(json.dumps({bench: {loss: result[bench][loss]["chosen"]}}))
            write("tuning", result)


if __name__ == "__main__":
    main()
