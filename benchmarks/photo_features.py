"""Features of frozen backbones for the ladder: embedded once by `iaa embed`, kept in runs/ladder."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from studies import PHOTOS, photos
from torch import Tensor, nn

from iaa.cli import main as iaa
from iaa.data import load
from iaa.data.image_dataset import ImageDataset, loader, transform
from iaa.embed import embed_batches
from iaa.models import build
from iaa.retrieval.embeddings import Embeddings

FOLDER = Path("runs") / "ladder"
BACKBONES = {"lite0": "lite0", "tinyvit": "timm/tiny_vit_5m_224"}


@dataclass(frozen=True)
class Features:
    """Training and test classes of one dataset as one backbone sees them."""

    z: Tensor
    labels: Tensor
    test_z: Tensor
    test_labels: Tensor


def options(description: str | None) -> argparse.ArgumentParser:
    """Where images and weights come from."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--cub", help="folder that holds CUB_200_2011, or a tar file of it")
    made.add_argument("--tinyvit", type=Path, help="weights of timm's tiny_vit_5m_224; fetched if not given")
    made.add_argument("--backbones", nargs="*", default=list(BACKBONES), choices=list(BACKBONES))
    return made


def features(data: str, backbone: str, words: argparse.Namespace) -> Features:
    """Of all images of cub or emoji."""
    file = FOLDER / f"{data}-{backbone}.safetensors"
    if not file.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        command = ["embed", data, "--split", "all", "--model", BACKBONES[backbone], "--out", str(file)]
        if data == "cub":
            photos(words.cub)
            command += ["--root", str(PHOTOS)]
        if backbone == "tinyvit" and words.tinyvit:
            command += ["--weights", str(words.tinyvit)]
        if iaa(command):
            raise SystemExit(f"iaa {' '.join(command)} failed")
    stored = Embeddings.load(file)
    test = torch.tensor([split == "test" for split in stored.split])
    return Features(stored.z[~test], stored.labels[~test], stored.z[test], stored.labels[test])


def flipped(backbone: str, words: argparse.Namespace) -> Tensor:
    """The training classes of CUB once more, mirrored."""
    file = FOLDER / f"cub-{backbone}-flipped.safetensors"
    if not file.exists():
        photos(words.cub)
        weights = words.tinyvit if backbone == "tinyvit" else None
        network = build(BACKBONES[backbone], dim=None, weights=weights)
        part = load("cub", root=PHOTOS).part("train")
        labels = np.asarray(part.labels)
        images = ImageDataset(part.paths, labels, transform(False, **network.preprocessing), cache=False)
        batches = [range(at, min(at + 64, len(images))) for at in range(0, len(images), 64)]
        save_file({"z": embed_batches(_Mirror(network), loader(images, batches=batches))[0]}, file)
    return load_file(file)["z"]


class _Mirror(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        embeddings: Tensor = self.network(images.flip(3))
        return embeddings


def few_per_class(labels: Tensor, number: int, seed: int) -> Tensor:
    """Rows of at most ``number`` samples of every class."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    order = order[labels[order].argsort(stable=True)]
    first = torch.searchsorted(labels[order], labels[order])
    return order[torch.arange(len(order)) - first < number]


def halves(labels: Tensor, seed: int = 0) -> list[Tensor]:
    """Two disjoint halves of the classes, to be held out in turns."""
    classes = labels.unique()
    order = classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))]
    return [torch.isin(labels, half) for half in order.chunk(2)]
