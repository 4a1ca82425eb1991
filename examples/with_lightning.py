"""IAA in a LightningModule: digits 0-4 for training, a dozen images of each, and 5-9 to be found."""

from contextlib import suppress

import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import iaa
from iaa.torchvision_compat import torchvision

with suppress(ImportError):
    torchvision()  # Lightning imports it, and its CUDA wheel beside a CPU torch would stop that
import lightning


class Digits(lightning.LightningModule):
    def __init__(self, copies: int = 3) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        augment = iaa.IAA(num_classes=5, dim=64, copies=copies)  # buffers: saved with every checkpoint
        self.criterion = iaa.BoostedLoss(MultiSimilarityLoss(), augment, miner=MultiSimilarityMiner())

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)

    def on_train_epoch_start(self) -> None:
        if self.criterion.augment.due(self.current_epoch):  # every few epochs: class statistics
            x, y = (part.to(self.device) for part in self.trainer.train_dataloader.dataset.tensors)
            with torch.no_grad():
                self.criterion.augment.fit(self(x), y)

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        x, y = batch
        return self.criterion(self(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def digits() -> tuple[TensorDataset, Tensor, Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.from_numpy(pixels).float() / 16, torch.from_numpy(labels)
    few = torch.cat([(y == digit).nonzero()[:12, 0] for digit in range(5)])
    return TensorDataset(x[few], y[few]), x[y >= 5], y[y >= 5]


def main(seeds: int = 3, epochs: int = 20) -> None:
    known, x, y = digits()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    for name, copies in (("without", 0), ("with IAA", 3)):
        found = []
        for seed in range(seeds):
            torch.manual_seed(seed)
            module = Digits(copies)
            trainer = lightning.Trainer(max_epochs=epochs, enable_model_summary=False, **quiet)
            trainer.fit(module, DataLoader(known, batch_size=30, shuffle=True))
            with torch.no_grad():
                found.append(iaa.score(module(x), y, ks=(1,)))
        for metric in ("R@1", "MAP@R"):
            mean = sum(scores[metric] for scores in found) / seeds
            print(f"{name:<10}{metric:<7}{mean:.2f} over {seeds} seeds, on digits never seen")


if __name__ == "__main__":
    main()
