"""Recipes for the whole network, tried on held-out training classes of CUB, then scored once on test classes.

python benchmarks/fine_tuning.py --cub DIR-OR-TAR [--tinyvit FILE] [--backbones tinyvit lite0]
       [--trials NAME …] [--test] [--data cub cub-3 emoji] [--rungs fine-tuned] [--seeds 1]

A trial trains on three quarters of the training classes and scores the others; whitening on the features of
the frozen network, fitted and scored on the same classes, is what it has to beat. `--test` trains the recipe
of the ladder (`iaa train --effort high`) on all training classes, without and with IAA, and adds the scores
to ladder.json; cub-3 takes three images of every training class, drawn by the seed. Interrupted runs
continue. Writes fine_tuning.json and fine_tuning.md.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import ladder
import torch
from markdown_tables import grid
from measurement import HERE, environment, write
from photo_features import BACKBONES, Features, features, options
from studies import PHOTOS, photos

import iaa
from iaa.cli.config_options import changed
from iaa.config import Config, Network
from iaa.data.dataset import draw_classes
from iaa.runs import Run
from iaa.training.rungs import HELD_OUT, fine_tuning

RUNS = Path("runs") / "fine-tuning"
WITHOUT = {"augment.copies": 0}
RUNGS: dict[str, dict[str, Any]] = {"fine-tuned": WITHOUT, "fine-tuned + IAA": {}}
DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "cub": ("cub/{}/all", {}),
    "cub-3": ("cub/{}/3", {"split.per_class": 3}),
    "emoji": ("emoji/{}/all", {"data": "emoji", "root": None}),
}
"""By name: the ladder that it belongs to, and what differs from CUB with all images."""
TRIALS: dict[str, dict[str, Any]] = {
    "recipe": WITHOUT,
    "recipe + IAA": {},
    "four epochs": {**WITHOUT, "epochs": 4},
    "rate 3e-5": {**WITHOUT, "optimizer.lr": 3e-5},
    "multi-similarity": {**WITHOUT, "loss": "multi_similarity"},
    "fixed-size crops": {**WITHOUT, "images.crop": "shift"},
}
"""What differs from the recipe of the ladder."""


def start(backbone: str, words: Any) -> Config:
    """The recipe of the ladder for a backbone; bf16 where its backward pass is quicker for it."""
    weights = str(words.tinyvit) if backbone == "tinyvit" and words.tinyvit else None
    basis = Config(
        data="cub",
        root=str(PHOTOS),
        model=BACKBONES[backbone],
        network=Network(weights=weights),
        precision="bf16" if backbone == "tinyvit" else "fp32",
    )
    return replace(fine_tuning(basis), run=replace(basis.run, out=str(RUNS), untrained=False, logger="none"))


def trained(config: Config, name: str) -> Run:
    """A run by its name: finished ones are used, interrupted ones continue."""
    folder = RUNS / name
    if not folder.is_dir():
        return iaa.train(replace(config, run=replace(config.run, name=name)))
    return Run(folder) if Run(folder).finished else iaa.train(resume=folder)


def held_out_whitening(data: Features, seed: int) -> dict[str, float]:
    """Whitening on the classes that a trial is scored on."""
    held_out = draw_classes(data.labels.unique().numpy(), HELD_OUT, seed=seed)
    rows = torch.isin(data.labels, torch.as_tensor(held_out))
    white = iaa.Whitening().fit(data.z[~rows], data.labels[~rows])
    return ladder.scores(white.transform(data.z[rows]), data.labels[rows])


def trial(backbone: str, name: str, words: Any) -> dict[str, Any]:
    """Scores on the held-out classes after every epoch, and the minutes of training."""
    config = changed(start(backbone, words), {**TRIALS[name], "split.val_classes": HELD_OUT})
    run = trained(config, f"{backbone}-{name.replace(' ', '-')}")
    epochs = [row for row in run.log if "val" in row]
    return {
        "epochs": [{key: row["val"][key] for key in ("R@1", "MAP@R")} for row in epochs],
        "minutes": run.metrics["training_seconds"] / 60,
        "changes": TRIALS[name],
    }


def test(backbone: str, data: str, rung: str, seed: int, words: Any) -> dict[str, float]:
    """Test scores of the recipe, without or with IAA."""
    config = changed(start(backbone, words), {**DATA[data][1], **RUNGS[rung]})
    run = trained(replace(config, seed=seed), f"{data}-{backbone}-{rung.replace(' + ', '-')}-{seed}")
    scores = {key: run.metrics["test"]["test"][key] for key in ("R@1", "MAP@R")}
    return scores | {"minutes": run.metrics["training_seconds"] / 60, "seed": seed}


def page(result: dict[str, Any]) -> str:
    """The trials of every backbone."""
    lines = ["# Fine-tuning the whole network\n"]
    for backbone, measured in result["backbones"].items():
        rows = []
        if white := measured.get("whitening"):
            rows.append(["whitening", f"{white['R@1']:.1f} / {white['MAP@R']:.1f}", "", ""])
        for name, trial in measured["trials"].items():
            cells = [f"{row['R@1']:.1f} / {row['MAP@R']:.1f}" for row in trial["epochs"]]
            rows.append([name, cells[-1], ", ".join(cells[:-1]), f"{trial['minutes']:.0f}"])
        lines += [f"## {backbone}\n"]
        if rows:
            head = ["held-out training classes", "R@1 / MAP@R", "epochs before", "minutes"]
            lines += [*grid(head, rows), ""]
        scores = [
            [data, rung, str(run["seed"]), f"{run['R@1']:.1f} / {run['MAP@R']:.1f}", f"{run['minutes']:.0f}"]
            for data, rungs in measured.get("test", {}).items()
            for rung, runs in rungs.items()
            for run in runs
        ]
        if scores:
            lines += [*grid(["test classes", "", "seed", "R@1 / MAP@R", "minutes"], scores), ""]
    lines.append(
        f"Trials hold out a quarter of the training classes (`benchmarks/fine_tuning.py`, commit "
        f"{result['commit']}, {result['machine']['cpu']}, {result['machine']['cores']} cores, shared with "
        "other work: minutes are upper bounds).\n"
    )
    return "\n".join(lines)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--trials", nargs="*", default=[], choices=list(TRIALS))
    parser.add_argument("--test", action="store_true", help="score the recipe on the test classes")
    parser.add_argument("--data", nargs="*", default=["cub"], choices=list(DATA), help="what --test scores")
    parser.add_argument("--rungs", nargs="*", default=list(RUNGS), choices=list(RUNGS))
    parser.add_argument("--seeds", type=int, default=1)
    words = parser.parse_args()
    photos(words.cub)
    file = HERE / "fine_tuning.json"
    former = json.loads(file.read_text())["backbones"] if file.exists() else {}
    result = environment("torch", "timm", "pytorch-metric-learning") | {"backbones": former}
    for backbone in words.backbones:
        measured = former.setdefault(backbone, {"trials": {}})
        if words.trials:
            measured["whitening"] = held_out_whitening(features("cub", backbone, words), Config().seed)
        for name in words.trials:
            measured["trials"][name] = trial(backbone, name, words)
            write("fine_tuning", result)
            (HERE / "fine_tuning.md").write_text(page(result))
        cases = [
            (data, rung, seed) for data in words.data for seed in range(words.seeds) for rung in words.rungs
        ]
        for data, rung, seed in cases if words.test else ():
            rungs = measured.setdefault("test", {}).setdefault(data, {})
            others = [run for run in rungs.get(rung, []) if run["seed"] != seed]
            scored = [*others, test(backbone, data, rung, seed, words)]
            rungs[rung] = sorted(scored, key=lambda run: run["seed"])
            write("fine_tuning", result)
            (HERE / "fine_tuning.md").write_text(page(result))
            ladder.add(DATA[data][0].format(backbone), rungs)


if __name__ == "__main__":
    main()
