"""What the results are made of: benches, their fixed fields, and where the data comes from."""

import argparse
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from iaa.cli import main as iaa

RUNS = Path("runs") / "results"
PHOTOS = RUNS / "cub"
VECTORS = RUNS / "cub-lite0.safetensors"
LOSSES = ("multi_similarity", "contrastive", "triplet")
FURTHER = ("triplet_distance", "margin", "circle", "norm_softmax", "proxy_nca", "soft_triple")
BENCHES: dict[str, dict[str, Any]] = {
    "cub-head": {"data": f"embeddings:{VECTORS}", "network.dim": 512, "epochs": 10},
    "cub-head-3": {
        "data": f"embeddings:{VECTORS}",
        "network.dim": 512,
        "epochs": 10,
        "split.per_class": 3,
        "augment.covariance": "full",
    },
    "emoji": {},
    "cub": {
        "data": "cub",
        "root": str(PHOTOS),
        "model": "lite0",
        "images.size": 112,
        "batch.classes": 16,
        "network.dim": 512,
        "network.freeze_bn": True,
        "epochs": 4,
        "optimizer.head_factor": 10.0,
    },
}
BENCHES["cub-long"] = {**BENCHES["cub"], "epochs": 8}
"""Fields that differ from the default of `iaa train`."""
TUNED_AS = {"cub-long": "cub"}
"""Benches too slow for choices of their own."""


def fields_of(bench: str, loss: str) -> dict[str, Any]:
    """Of one bench with one loss."""
    return {**BENCHES[bench], "loss": loss}


def prepare(bench: str, cub: str | None) -> None:
    """Make what a bench needs and is not there yet."""
    if BENCHES[bench].get("data") == "cub":
        photos(cub)
    if bench.startswith("cub-head") and not VECTORS.exists():
        photos(cub)
        words = ["embed", "cub", "--root", str(PHOTOS), "--split", "all", "--out", str(VECTORS)]
        if iaa(words):
            raise SystemExit(f"iaa {' '.join(words)} failed")


def photos(given: str | None) -> None:
    """CUB_200_2011 under PHOTOS: unpacked from a tar file, or a link to the folder that holds it."""
    if (PHOTOS / "CUB_200_2011").is_dir():
        return
    source = Path(given or os.environ.get("CUB") or PHOTOS).expanduser()
    PHOTOS.parent.mkdir(parents=True, exist_ok=True)
    if PHOTOS.is_symlink():  # to a folder that is gone
        PHOTOS.unlink()
    if source.is_file():
        partial = PHOTOS.with_suffix(".partial")
        with tarfile.open(source) as packed:
            packed.extractall(partial, filter="data")
        partial.rename(PHOTOS)
    elif (source / "CUB_200_2011").is_dir():
        PHOTOS.symlink_to(source.resolve(), target_is_directory=True)
    if not (PHOTOS / "CUB_200_2011").is_dir():
        raise SystemExit(f"no CUB_200_2011 in {source}: give --cub its folder or a tar file of it")


def parser(teaching: str | None, names: Iterable[str]) -> argparse.ArgumentParser:
    """Names, where the photos are, and how many runs at a time."""
    made = argparse.ArgumentParser(description=teaching, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("names", nargs="*", choices=[*names, []], metavar="NAME")
    made.add_argument("--cub", help="folder that holds CUB_200_2011, or a tar file of it")
    made.add_argument("--jobs", type=int, default=2, help="runs at a time (2)")
    return made
