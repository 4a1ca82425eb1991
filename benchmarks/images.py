"""Images per second against a plain ImageFolder + DataLoader on CUB, at the same settings, in the same run.

python benchmarks/images.py --root FOLDER_WITH_CUB_200_2011 --out benchmarks/images.json

Both contenders start anew in every repeat and take turns epoch by epoch, so that whatever else the machine
does meets both. Our first epoch includes looking at every file and setting up the cache.
"""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
import tyro
from measurement import environment

from iaa.data import load
from iaa.data.image_dataset import ImageDataset, loader, transform
from iaa.torchvision_compat import torchvision


@dataclass
class Settings:
    root: Path
    """Folder that holds CUB_200_2011."""
    out: Path | None = None
    """File for the result."""
    images: int = 2000
    repeats: int = 5
    epochs: int = 3
    batch_size: int = 64
    workers: int = 2
    quick: bool = False
    """One repeat on few images, to see that everything works."""


def main(settings: Settings) -> None:
    if settings.quick:
        settings = replace(settings, images=128, repeats=1, out=None)
    plain: list[list[float]] = []
    ours: list[list[float]] = []
    note = ""
    for repeat in range(settings.repeats):
        dataset = load("cub", root=settings.root).part("train")
        rows = np.random.default_rng(repeat).permutation(len(dataset))[: settings.images]
        some = dataset.take(rows)

        def start_plain(paths: Iterable[str] = some.paths) -> Iterable[object]:
            return plain_loader(settings, list(paths))

        def start_ours(some=some) -> Iterable[object]:
            nonlocal note
            images = ImageDataset(some.paths, some.labels, transform(True))
            note = images.note
            return loader(images, batch_size=settings.batch_size, workers=settings.workers)

        contenders: list[tuple[list[list[float]], Callable[[], Iterable[object]]]]
        contenders = [(plain, start_plain), (ours, start_ours)]
        running: list[Iterable[object] | None] = [None, None]
        for speeds, _ in contenders:
            speeds.append([])
        for epoch in range(settings.epochs):
            for turn in (0, 1) if (repeat + epoch) % 2 else (1, 0):
                speeds, start = contenders[turn]
                begin = time.perf_counter()
                batches = running[turn] = running[turn] or start()
                number = sum(len(batch[0]) for batch in batches)
                speeds[-1].append(number / (time.perf_counter() - begin))
    report = result(settings, plain, ours, note)
    print(json.dumps(report, indent=2))
    if settings.out:
        settings.out.write_text(json.dumps(report, indent=2) + "\n")


def plain_loader(settings: Settings, paths: list[str]) -> Iterable[object]:
    """What a tutorial writes."""
    torchvision()
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    steps = transforms.Compose(
        [
            transforms.Resize((256, 256)),
            transforms.RandomCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    folder = ImageFolder(str(Path(paths[0]).parents[1]), steps)
    kept = {path: i for i, (path, _) in enumerate(folder.samples)}
    subset = torch.utils.data.Subset(folder, [kept[path] for path in paths])
    return torch.utils.data.DataLoader(
        subset,
        batch_size=settings.batch_size,
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
    )


def result(
    settings: Settings, plain: list[list[float]], ours: list[list[float]], note: str
) -> dict[str, object]:
    ratios = [[b / a for a, b in zip(p, o, strict=True)] for p, o in zip(plain, ours, strict=True)]
    columns = list(zip(*ratios, strict=True))
    return {
        "ratio_first_epoch": round(median(columns[0]), 2),
        "ratio_later_epochs": round(median(value for column in columns[1:] for value in column), 2),
        "ratio_range_first": [round(min(columns[0]), 2), round(max(columns[0]), 2)],
        "ratio_range_later": [
            round(f(min(c) if f is min else max(c) for c in columns[1:]), 2) for f in (min, max)
        ],
        "images_per_second": {
            name: [round(median(epoch)) for epoch in zip(*speeds, strict=True)]
            for name, speeds in (("ImageFolder", plain), ("iaa", ours))
        },
        "settings": {k: v for k, v in vars(settings).items() if k not in ("root", "out", "quick")},
        "cache": note,
        **environment("torch", "torchvision", "pillow"),
    }


if __name__ == "__main__":
    main(tyro.cli(Settings))
