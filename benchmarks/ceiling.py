"""How much could better covariances bring? Heads trained on three samples of every class of CUB-200-2011.

python benchmarks/ceiling.py [--cub DIR-OR-TAR]

IAA without correction, with correction, and with what no correction can know: the covariance of all samples
of a class. Measured on a third of the training classes, held out; other classes and samples with every seed.
The options are those of tuning.json for cub-head-3. Writes ceiling.json, which docs/results.md shows.
"""

import json
from statistics import mean
from typing import Any

import torch
from measurement import HERE, environment, write
from studies import LOSSES, VECTORS, parser, prepare

import iaa
from iaa.data.sampler import BalancedSampler
from iaa.models.heads import VectorHead

SEEDS = range(10)
STRENGTHS = (0.2, 0.8, 2.0, 5.0)
DIM, SAMPLES, EPOCHS = 512, 3, 10


def train(
    z: torch.Tensor, labels: torch.Tensor, options: dict[str, Any], source: str, strength: float, seed: int
) -> float:
    """MAP@R on held-out classes of a head trained on few samples of the others."""
    held_out = _held_out(labels, seed)
    torch.manual_seed(seed)
    known, known_labels = z[~held_out], labels[~held_out].unique(return_inverse=True)[1]
    order = torch.randperm(len(known))
    order = order[known_labels[order].argsort(stable=True)]
    first = torch.searchsorted(known_labels[order], known_labels[order])
    few = order[torch.arange(len(order)) - first < SAMPLES]
    classes = int(known_labels.max()) + 1
    head = VectorHead(z.shape[1], dim=DIM)
    loss, miner = iaa.losses.build(options["loss"], num_classes=classes, dim=DIM, **options["loss_options"])
    augment = iaa.IAA(
        classes,
        DIM,
        covariance="full",
        correction=source == "corrected",
        strength=strength,
        copies=0 if source == "baseline" else 3,
    )
    criterion = iaa.BoostedLoss(loss, augment, miner)
    sampler = BalancedSampler(known_labels[few], classes=32, per_class=4, seed=seed)
    optimizer = torch.optim.Adam(head.parameters(), lr=options["lr"], weight_decay=4e-4)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(sampler))
    seen = torch.arange(len(known)) if source == "all samples" else few
    for epoch in range(EPOCHS):
        if augment.due(epoch):
            with torch.no_grad():
                augment.fit(head(known[seen]), known_labels[seen])
        sampler.set_epoch(epoch)
        for rows in sampler:
            batch = few[torch.as_tensor(rows)]
            optimizer.zero_grad()
            criterion(head(known[batch]), known_labels[batch]).backward()
            optimizer.step()
            falling.step()
    with torch.no_grad():
        return iaa.score(head(z[held_out]), labels[held_out], ks=(1,))["MAP@R"]


def main() -> None:
    words = parser(__doc__, ()).parse_args()
    prepare("cub-head", words.cub)
    tuned = json.loads((HERE / "tuning.json").read_text())["cub-head-3"]
    file = iaa.Embeddings.load(VECTORS)
    rows = torch.tensor([split == "train" for split in file.split])
    z, labels = file.z[rows].float(), file.labels[rows]
    result: dict[str, Any] = {"losses": {}, **environment("torch", "pytorch-metric-learning")}
    for name in LOSSES:
        chosen = tuned[name]["baseline_chosen"]
        options = {"loss": name, "lr": chosen["optimizer.lr"], "loss_options": chosen["loss_options"]}
        scores: dict[str, list[float]] = {}
        for source in ("baseline", "uncorrected", "corrected", "all samples"):
            for strength in STRENGTHS if source != "baseline" else (0.0,):
                made = [train(z, labels, options, source, strength, seed) for seed in SEEDS]
                scores[f"{source}, {strength:g}"] = made
        print(name, {key: round(mean(values), 2) for key, values in scores.items()}, flush=True)
        result["losses"][name] = scores
    write("ceiling", result)


def _held_out(labels: torch.Tensor, seed: int) -> torch.Tensor:
    classes = labels.unique()
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))
    return torch.isin(labels, classes[order[: len(classes) // 3]])


if __name__ == "__main__":
    main()
