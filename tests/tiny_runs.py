"""Runs that take a second: a few classes of tiny images, a tiny network."""

import json
from pathlib import Path
from typing import Any

import tiny_datasets
from iaa.config import Augment, BatchOptions, Config, Images, Network, RunOptions, Split


def images(root: Path, *, classes: int = 10, each: int = 6, alike: bool = False) -> Path:
    """Images of noise; those of a class resemble each other if ``alike``."""
    for label in range(classes):
        for number in range(each):
            file, seed = root / f"c{label}" / f"{number}.png", 100 * label + number
            tiny_datasets.image(file, seed=seed, size=(20, 20), like=label if alike else None)
    return root


def tiny(root: Path, out: Path, **fields: Any) -> Config:
    """A configuration over ``images(root)``; nested ones are given as a whole."""
    chosen: dict[str, Any] = {
        "data": f"folder:{root}",
        "model": "convnet",
        "epochs": 3,
        "device": "cpu",
        "images": Images(size=16, workers=0),
        "network": Network(dim=8),
        "batch": BatchOptions(classes=4, per_class=3),
        "split": Split(test_share=0.2),
        "augment": Augment(refresh_every=2, neighbors=3),
        "run": RunOptions(out=str(out), name="run-1", untrained=False, logger="none"),
    }
    return Config(**{**chosen, **fields})


def steps(folder: Path) -> list[dict[str, Any]]:
    return [row for row in lines(folder) if "step" in row]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
