"""Training and embedding ended by SIGKILL again and again: what was resumed must hold the same bits."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from iaa.config import Augment, BatchOptions, Config, Images, Network, RunOptions, Split
from iaa.files import read_tensors, tensors_digest

KILL_TRAINING = Path(__file__).parents[1] / "tests" / "kill_training.py"
COMPARED = ("model.safetensors", "best.safetensors", "statistics.safetensors", "embeddings.safetensors")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}  # sums depend on the number of threads


def kill_training(folder: Path, *, kills: int, seed: int) -> dict[str, Any]:
    """A run killed at least two steps after the last kill, against one that was never interrupted."""
    config = Config(
        data=f"folder:{_images(folder / 'training images', classes=10, each=6, seed=seed)}",
        model="convnet",
        epochs=2 * kills,
        seed=seed,
        device="cpu",
        images=Images(size=16, workers=0),
        network=Network(dim=8),
        batch=BatchOptions(classes=4, per_class=3),
        split=Split(test_share=0.2, val_classes=0.25),
        augment=Augment(refresh_every=2, neighbors=3),
        run=RunOptions(untrained=False, logger="none", checkpoint_minutes=0, select="best"),
    )
    (folder / "config.json").write_text(config.to_json())
    words = [sys.executable, KILL_TRAINING, folder / "config.json", folder / "runs", str(kills)]
    output = subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, check=True).stdout
    digests = [
        [tensors_digest(read_tensors(folder / "runs" / run / name)[0]) for run in ("whole", "killed")]
        for name in COMPARED
    ]
    return {
        "kills": output.count("killed behind"),
        "files compared": len(digests),
        "files identical": sum(whole == killed for whole, killed in digests),
    }


def kill_embedding(folder: Path, *, kills: int, seed: int) -> dict[str, Any]:
    """`iaa embed` killed at random moments, each time after it has come further."""
    chance, done = random.Random(seed), 0
    images = _images(folder / "embedding images", classes=10, each=10 * kills + 50, seed=seed)
    whole, killed = folder / "whole.safetensors", folder / "killed.safetensors"
    words = [sys.executable, "-m", "iaa", "embed", f"folder:{images}", "--split", "all", "--model", "convnet"]
    words += ["--size", "16", "--workers", "0", "--batch-size", "1", "--save-every", "2"]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": ENVIRONMENT}
    subprocess.run([*words, "--out", str(whole)], check=True, **quiet)
    for _ in range(kills):
        before = _finished_parts(killed)
        with subprocess.Popen([*words, "--out", str(killed)], **quiet) as process:
            while _finished_parts(killed) <= before and process.poll() is None:
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.03))
            process.kill()
            done += process.wait() == -signal.SIGKILL
    subprocess.run([*words, "--out", str(killed)], check=True, **quiet)
    same = whole.read_bytes() == killed.read_bytes()
    return {"kills": done, "files compared": 1, "files identical": int(same)}


def _finished_parts(out: Path) -> int:
    return len(list(Path(f"{out}.parts").glob("0*.safetensors")))


def _images(folder: Path, *, classes: int, each: int, seed: int) -> Path:
    chance = np.random.default_rng(seed)
    for label in range(classes):
        (folder / f"class {label}").mkdir(parents=True)
        for number in range(each):
            pixels = chance.integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"class {label}" / f"{number}.png")
    return folder
