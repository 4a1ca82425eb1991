"""IAA in three lines of a pytorch-metric-learning loop: digits 0-4 for training, 5-9 to be found."""

import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from sklearn.datasets import load_digits
from torch import Tensor, nn

import iaa


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.from_numpy(pixels).float() / 16, torch.from_numpy(labels)
    known = y < 5
    return x[known], y[known], x[~known], y[~known]


def train(x: Tensor, y: Tensor, *, copies: int, seed: int, epochs: int = 20) -> nn.Module:
    torch.manual_seed(seed)
    few = torch.cat(
        [(y == digit).nonzero()[:12, 0] for digit in range(5)]
    )  # a dozen of each, as in real life
    x, y = x[few], y[few]
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    augment = iaa.IAA(num_classes=5, dim=64, copies=copies)
    criterion = iaa.BoostedLoss(MultiSimilarityLoss(), augment, miner=MultiSimilarityMiner())
    for epoch in range(epochs):
        if augment.due(epoch):
            with torch.no_grad():
                augment.fit(model(x), y)
        for rows in torch.randperm(len(x)).split(30):
            optimizer.zero_grad()
            criterion(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model


def show(name: str, models: list[nn.Module], x: Tensor, y: Tensor) -> None:
    with torch.no_grad():
        scores = [iaa.score(model(x), y, ks=(1,)) for model in models]
    columns = {metric: torch.tensor([s[metric] for s in scores]) for metric in ("R@1", "MAP@R")}
    cells = (f"{metric} {v.mean():.1f} ± {v.std(correction=0):.1f}" for metric, v in columns.items())
    print(f"{name:<12}{'   '.join(cells)}")


def main(seeds: int = 3) -> None:
    x, y, unseen_x, unseen_y = digits()
    show("pixels", [nn.Identity()], unseen_x, unseen_y)  # five classes are few to learn from: a high bar
    for name, copies in (("without IAA", 0), ("with IAA", 3)):
        show(name, [train(x, y, copies=copies, seed=seed) for seed in range(seeds)], unseen_x, unseen_y)


if __name__ == "__main__":
    main()
