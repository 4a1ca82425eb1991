"""The paper's number of steps on CUB: does the baseline overfit, and does IAA hold it back?

python benchmarks/paper_regime.py --cub DIR-OR-TAR [--arms baseline iaa …] [--seeds 1] [--epochs 100]

Lite0 at 96 pixels, batches of 128, multi-similarity, 100 epochs of 46 steps: hours for every arm, so runs
continue where they were stopped. The weights of every fifth epoch are kept, and the test classes are scored
from them afterwards: they choose nothing. Writes paper_regime.json and docs/results/paper-regime.{svg,md}.
"""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib.pyplot as plt
from markdown_tables import grid
from measurement import HERE, environment, write
from photo_features import options
from results_pages import KEPT
from studies import PHOTOS, photos

import iaa
from iaa.cli.config_options import changed
from iaa.config import Config
from iaa.embed import embed_batches
from iaa.run_records import trained_network
from iaa.runs import KEPT_WEIGHTS, Run

RUNS = Path("runs") / "paper-regime"
EVERY = 5
FIELDS: dict[str, Any] = {
    "data": "cub",
    "root": str(PHOTOS),
    "model": "lite0",
    "images.size": 96,
    "network.head": "linear",
    "network.dim": 512,
    "network.freeze_bn": True,
    "optimizer.lr": 3e-5,
    "optimizer.head_factor": 10.0,
    "optimizer.schedule": "steps",
    "run.out": str(RUNS),
    "run.keep_every": EVERY,
    "run.untrained": False,
    "run.logger": "none",
}
"""The rate is what benchmarks/tuning.py chose for the whole network on held-out training classes."""
ARMS: dict[str, dict[str, Any]] = {
    "baseline": {"augment.copies": 0},
    "iaa": {"augment.strength": 0.8},
    "iaa from epoch 31": {"augment.strength": 0.8, "augment.start_epoch": 30},
    "duplicates": {"augment.strength": 0.0},
}


def trained(arm: str, seed: int, epochs: int) -> Run:
    """The run of an arm; an interrupted one continues."""
    name = f"{arm.replace(' ', '-')}-{seed}"
    if (RUNS / name).is_dir():
        run = Run(RUNS / name)
        return run if run.finished else iaa.train(resume=run)
    config = changed(Config(), {**FIELDS, **ARMS[arm], "seed": seed, "epochs": epochs, "run.name": name})
    return iaa.train(config)


def curve(run: Run) -> list[dict[str, float]]:
    """Test scores from the weights that were kept."""
    points = []
    for epoch in range(EVERY, run.config.epochs + 1, EVERY):
        network = trained_network(run.config, run / KEPT_WEIGHTS.format(epoch))
        scores = iaa.score(*_test_embeddings(run, network), ks=(1,))
        points.append({"epoch": epoch, "R@1": scores["R@1"], "MAP@R": scores["MAP@R"]})
        print(run.name, points[-1], flush=True)
    return points


def _test_embeddings(run: Run, network: Any) -> tuple[Any, Any]:
    part = run.data.tests["test"]
    z, labels, _ = embed_batches(network, run.data.in_order(part, network.preprocessing))
    return z, labels


def draw(result: dict[str, Any]) -> None:
    """MAP@R of the test classes over epochs, one line per arm, with its seeds in thin lines."""
    figure, axes = plt.subplots(figsize=(7, 4))
    for number, (arm, seeds) in enumerate(result["arms"].items()):
        epochs = [point["epoch"] for point in next(iter(seeds.values()))]
        lines = [[point["MAP@R"] for point in points] for points in seeds.values()]
        for line in lines:
            axes.plot(epochs, line, color=f"C{number}", alpha=0.3, linewidth=0.8)
        axes.plot(
            epochs, [mean(values) for values in zip(*lines, strict=True)], color=f"C{number}", label=arm
        )
    axes.set(xlabel="epoch", ylabel="MAP@R on test classes, percent")
    axes.legend(frameon=False)
    figure.savefig(KEPT / "paper-regime.svg", bbox_inches="tight", metadata={"Date": None})


def page(result: dict[str, Any]) -> str:
    """The curve, and the scores at its highest point and at its end."""
    rows = []
    for arm, seeds in result["arms"].items():
        last = [points[-1] for points in seeds.values()]
        highest = [max(points, key=lambda point: point["MAP@R"]) for points in seeds.values()]
        cells = [
            f"{mean(p['R@1'] for p in part):.1f} / {mean(p['MAP@R'] for p in part):.1f}"
            for part in (last, highest)
        ]
        rows.append([arm, str(len(seeds)), *cells])
    head = ["", "seeds", "last epoch, R@1 / MAP@R", "highest point of the curve"]
    return "\n".join(
        ["# As many steps as the paper", "", "![Curves](paper-regime.svg)", "", *grid(head, rows), ""]
    )


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--arms", nargs="*", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=100)
    words = parser.parse_args()
    photos(words.cub)
    file = HERE / "paper_regime.json"
    arms: dict[str, Any] = json.loads(file.read_text())["arms"] if file.exists() else {}
    for seed in range(words.seeds):
        for arm in words.arms:
            run = trained(arm, seed, words.epochs)
            if str(seed) not in arms.setdefault(arm, {}):
                arms[arm][str(seed)] = curve(run)
            result = environment("torch", "timm", "pytorch-metric-learning") | {"arms": arms}
            write("paper_regime", result)
            draw(result)
            (KEPT / "paper-regime.md").write_text(page(result))


if __name__ == "__main__":
    main()
