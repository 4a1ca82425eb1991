"""The other side of `embedding_speed.py` and of `training_speed.py`: plain loops as a tutorial writes them.

python benchmarks/photos_by_hand.py embed PHOTOS NETWORK SIZE OUT
python benchmarks/photos_by_hand.py train PHOTOS NETWORK SIZE EPOCHS

timm's network with random weights, torchvision's transforms and ImageFolder, a DataLoader, PML's loss and
miner. Prints the images per second of every pass over the photos as JSON.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from iaa.torchvision_compat import torchvision

CLASSES, PER_CLASS = 8, 4
"""Of a training batch."""
WORKERS = max(len(os.sched_getaffinity(0)) - 1, 1)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make_photos(folder: Path, classes: int, each: int) -> None:
    """JPEGs of 500 x 375 pixels, a class per sub-folder: patches of colour with a little noise."""
    generator = np.random.default_rng(0)
    for number in range(classes * each):
        coarse = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC), dtype=np.int16)
        noisy = (pixels + generator.integers(-12, 13, pixels.shape)).clip(0, 255).astype(np.uint8)
        path = folder / f"{number // each:03d}" / f"{number % each:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noisy).save(path, quality=90)


def embed(photos: str, network: str, size: str, out: str) -> list[float]:
    """One pass over the photos; the embeddings go to a file."""
    torchvision()
    import timm
    from safetensors.torch import save_file
    from torchvision.datasets import ImageFolder

    model = timm.create_model(network, num_classes=0).eval()
    options = timm.data.resolve_model_data_config(model) | {"input_size": (3, int(size), int(size))}
    folder = ImageFolder(photos, timm.data.create_transform(**options, is_training=False))
    began = time.perf_counter()
    with torch.inference_mode():
        loader = torch.utils.data.DataLoader(folder, batch_size=64, num_workers=WORKERS)
        z = torch.cat([model(images) for images, _ in loader])
    save_file({"z": z}, out)
    return [len(z) / (time.perf_counter() - began)]


def train(photos: str, network: str, size: str, epochs: str) -> list[float]:
    """Multi-similarity with its miner on balanced batches."""
    torchvision()
    import timm
    from pytorch_metric_learning.losses import MultiSimilarityLoss
    from pytorch_metric_learning.miners import MultiSimilarityMiner
    from pytorch_metric_learning.samplers import MPerClassSampler
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    steps = [
        transforms.Resize(int(size) * 8 // 7),
        transforms.RandomCrop(int(size)),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    folder = ImageFolder(photos, transforms.Compose(steps))
    batch = CLASSES * PER_CLASS
    sampler = MPerClassSampler(folder.targets, PER_CLASS, batch, length_before_new_iter=len(folder))
    loader = torch.utils.data.DataLoader(
        folder, batch_size=batch, sampler=sampler, num_workers=WORKERS, persistent_workers=True
    )
    model = timm.create_model(network, num_classes=512)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    loss, miner = MultiSimilarityLoss(), MultiSimilarityMiner()
    speeds = []
    for _ in range(int(epochs)):
        began, images_seen = time.perf_counter(), 0
        for images, labels in loader:
            optimizer.zero_grad()
            z = model(images)
            loss(z, labels, miner(z, labels)).backward()
            optimizer.step()
            images_seen += len(images)
        speeds.append(images_seen / (time.perf_counter() - began))
    return speeds


if __name__ == "__main__":
    print(json.dumps({"images_per_second": {"embed": embed, "train": train}[sys.argv[1]](*sys.argv[2:])}))
