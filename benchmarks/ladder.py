"""What every rung above a frozen backbone brings on unseen classes: ladder.json and ladder.md.

python benchmarks/ladder.py --cub DIR-OR-TAR [--tinyvit FILE] [--data cub emoji] [--seeds 3]

Rungs: the frozen features, their square root where none is negative, whitening, a linear head that starts as
the whitening map and is trained, the same with IAA. Loss, rate and strength of the heads are chosen on
held-out training classes; seeds draw the batches and, with three images of every class, these images.
Fine-tuned networks are added by fine_tuning.py.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from statistics import mean, stdev
from typing import Any

import torch
from measurement import HERE, environment, write
from photo_features import Features, features, few_per_class, halves, options
from torch import Tensor, nn

import iaa
from iaa.data.sampler import BalancedSampler
from iaa.method.whitening import signed_power

RUNGS = ("frozen", "square root", "whitening", "head", "head + IAA", "fine-tuned", "fine-tuned + IAA")
STEPS, DIM = 200, 512
Scores = dict[str, float]


@dataclass(frozen=True)
class Recipe:
    """How a head is trained."""

    loss: str = "multi_similarity"
    lr: float = 1e-4
    strength: float = 0.0
    """Of IAA; 0 is none."""


PLAIN = tuple(Recipe(loss, lr) for loss in ("multi_similarity", "norm_softmax") for lr in (3e-5, 1e-4))
STRENGTHS = (0.2, 0.8)


def scores(z: Tensor, labels: Tensor) -> Scores:
    """R@1 and MAP@R."""
    found = iaa.score(z, labels, ks=(1,))
    return {name: found[name] for name in ("R@1", "MAP@R")}


def closed_form(data: Features) -> Iterator[tuple[str, Scores]]:
    """The rungs that train nothing."""
    yield "frozen", scores(data.test_z, data.test_labels)
    if not bool((data.z < 0).any()):
        yield "square root", scores(data.test_z.sqrt(), data.test_labels)
    white = iaa.Whitening().fit(data.z, data.labels)
    found = scores(white.transform(data.test_z), data.test_labels)
    yield "whitening", found | {"shrink": float(white.chosen_shrink or 0)}


@dataclass(frozen=True)
class Start:
    """Where heads start: centred features and the whitening map."""

    known: Tensor
    labels: Tensor
    unseen: Tensor
    unseen_labels: Tensor
    weight: Tensor

    @classmethod
    def of(cls, data: Features) -> "Start":
        """Features to the power that whitening chose, and its map at a mean length of 1."""
        _, labels = data.labels.unique(return_inverse=True)
        white = iaa.Whitening(dim=min(DIM, data.z.shape[1])).fit(data.z, labels)
        known, unseen = (signed_power(z, white.exponent) - white.center for z in (data.z, data.test_z))
        weight = white.weight / (known @ white.weight.T).norm(dim=1).mean()
        return cls(known, labels, unseen, data.test_labels, weight)


def train_head(start: Start, recipe: Recipe, seed: int) -> Scores:
    """Test scores of a linear head that starts as the whitening map."""
    torch.manual_seed(seed)
    known, labels, dim = start.known, start.labels, len(start.weight)
    classes = int(labels.max()) + 1
    head = nn.Linear(known.shape[1], dim)
    with torch.no_grad():
        head.bias.zero_()
        head.weight.copy_(start.weight)
        first = head(known)
    loss, miner = iaa.losses.build(recipe.loss, num_classes=classes, dim=dim)
    groups: list[dict[str, Any]] = [{"params": head.parameters()}]
    for proxies in loss.parameters():  # classes start at their means
        unit = nn.functional.normalize(iaa.estimate(first, labels, num_classes=classes).mean, dim=1)
        proxies.data.copy_(unit.T if proxies.shape[0] == dim else unit)
        groups.append({"params": [proxies], "lr": 10 * recipe.lr})
    augment = iaa.IAA(classes, dim, strength=recipe.strength, copies=3 if recipe.strength else 0)
    criterion = iaa.BoostedLoss(loss, augment, miner)
    optimizer = torch.optim.AdamW(groups, lr=recipe.lr, weight_decay=1e-4)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step, rows in enumerate(_batches(labels, seed)):
        if recipe.strength and step % (STEPS // 4) == 0:
            with torch.no_grad():
                augment.fit(head(known), labels)
        optimizer.zero_grad()
        criterion(head(known[rows]), labels[rows]).backward()
        optimizer.step()
        falling.step()
    with torch.no_grad():
        return scores(head(start.unseen), start.unseen_labels)


def _batches(labels: Tensor, seed: int) -> Iterator[Tensor]:
    sampler = BalancedSampler(labels, classes=32, per_class=4, seed=seed)
    epoch = done = 0
    while True:
        sampler.set_epoch(epoch)
        for rows in sampler:
            if done == STEPS:
                return
            yield torch.as_tensor(rows)
            done += 1
        epoch += 1


def choose(data: Features, few: int | None) -> dict[str, Recipe]:
    """The recipes with the best MAP@R on halves of the training classes that are held out in turns."""

    turns = []
    for held in halves(data.labels):
        rows = _rows(data.labels, few, 0, among=~held)
        turns.append(Start.of(Features(data.z[rows], data.labels[rows], data.z[held], data.labels[held])))

    def measured(recipe: Recipe) -> float:
        found = mean(train_head(turn, recipe, 0)["MAP@R"] for turn in turns)
        print(asdict(recipe), f"{found:.2f}", flush=True)
        return found

    plain = max(PLAIN, key=measured)
    boosted = max((replace(plain, strength=strength) for strength in STRENGTHS), key=measured)
    return {"head": plain, "head + IAA": boosted}


def _rows(labels: Tensor, few: int | None, seed: int, among: Tensor | None = None) -> Tensor:
    rows = torch.arange(len(labels)) if among is None else among.nonzero().flatten()
    return rows if few is None else rows[few_per_class(labels[rows], few, seed)]


def climb(data: Features, few: int | None, seeds: int) -> dict[str, Any]:
    """All rungs of one dataset and backbone."""
    recipes, whole = choose(data, few), Start.of(data)
    found: dict[str, list[Scores]] = {}
    for seed in range(seeds):
        rows = _rows(data.labels, few, seed)
        part = replace(data, z=data.z[rows], labels=data.labels[rows])
        rungs = dict(closed_form(part)) if few or seed == 0 else {}
        start = Start.of(part) if few else whole
        rungs |= {name: train_head(start, recipe, seed) for name, recipe in recipes.items()}
        for name, row in rungs.items():
            found.setdefault(name, []).append(row)
            print(seed, name, row, flush=True)
    return {"rungs": found, "recipes": {name: asdict(recipe) for name, recipe in recipes.items()}}


def page(result: dict[str, Any]) -> str:
    """The table: mean and deviation over seeds."""
    lines = ["| data | backbone | " + " | ".join(RUNGS) + " |", "|---" * (len(RUNGS) + 2) + "|"]
    for name, found in result["ladders"].items():
        data, backbone, part = name.split("/")
        cells = [_cell(found["rungs"].get(rung, [])) for rung in RUNGS]
        title = data if part == "all" else f"{data}, {part} per class"
        lines.append(f"| {title} | {backbone} | " + " | ".join(cells) + " |")
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    legend = (
        "R@1 / MAP@R in percent on unseen classes, mean ± standard deviation over seeds if there are several "
        f"(`benchmarks/ladder.py`, commit {result['commit']}, {result['machine']['cpu']}, {versions})."
    )
    return "\n".join([*lines, "", legend, ""])


def _cell(rows: list[Scores]) -> str:
    texts = []
    for metric in ("R@1", "MAP@R"):
        values = [row[metric] for row in rows]
        spread = f" ± {stdev(values):.1f}" if len(values) > 1 and stdev(values) > 0 else ""
        texts.append(f"{mean(values):.1f}{spread}" if values else "")
    return " / ".join(texts) if rows else ""


def add(name: str, rungs: dict[str, list[Scores]]) -> None:
    """Add rungs that another script has measured to ladder.json and ladder.md."""
    result = json.loads((HERE / "ladder.json").read_text())
    result["ladders"].setdefault(name, {"rungs": {}})["rungs"] |= rungs
    write("ladder", result)
    (HERE / "ladder.md").write_text(page(result))


def main() -> None:
    """Climb what is asked for; other ladders of the file stay."""
    parser = options(__doc__)
    parser.add_argument("--data", nargs="*", default=["cub", "emoji"], choices=["cub", "emoji"])
    parser.add_argument("--seeds", type=int, default=3)
    words: argparse.Namespace = parser.parse_args()
    file = HERE / "ladder.json"
    ladders: dict[str, Any] = json.loads(file.read_text())["ladders"] if file.exists() else {}
    result = environment("torch", "timm", "pytorch-metric-learning") | {"ladders": ladders}
    for data in words.data:
        for backbone in words.backbones:
            found = features(data, backbone, words)
            for few in (None, 3) if data == "cub" else (None,):
                name = f"{data}/{backbone}/{few or 'all'}"
                tuned = {
                    rung: rows
                    for rung, rows in ladders.get(name, {}).get("rungs", {}).items()
                    if "tuned" in rung
                }
                ladders[name] = climb(found, few, words.seeds)
                ladders[name]["rungs"] |= tuned
                write("ladder", result)
                (HERE / "ladder.md").write_text(page(result))


if __name__ == "__main__":
    main()
