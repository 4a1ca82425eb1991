"""Training on the CPU: `iaa train` with its defaults against a plain loop (`photos_by_hand.py`).

python benchmarks/training_speed.py [--quick]

Same network with random weights, same photos, batch and loss. Images per second of four epochs, from new
photos on, with everything that belongs to them: for `iaa` also the synthetics and the pass over the training
set for their statistics, of which there is one in four epochs. Memory is the largest of the process and its
workers. bf16, which is not the default, runs in the first round alone. Results go to
benchmarks/training_speed.json; --quick runs one network once and writes nothing.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from folder_to_search import measured
from measurement import HERE, environment, ratio, write
from photos_by_hand import CLASSES, PER_CLASS, make_photos

NETWORKS = ("tf_efficientnet_lite0", "tiny_vit_5m_224")
SIZES = (128, 224)
EPOCHS = 4


def measure(folder: Path, networks: tuple[str, ...], sizes: tuple[int, ...], rounds: int) -> dict[str, Any]:
    make_photos(folder / "photos" / "train", CLASSES, 8)
    make_photos(folder / "photos" / "test", 2, 8)
    found: dict[str, Any] = {"batch": CLASSES * PER_CLASS, "epochs": EPOCHS, "rounds": rounds}
    for network in networks:
        for size in sizes:
            sides: dict[str, list[tuple[float, float]]] = {"by hand": [], "iaa": [], "iaa, bf16": []}
            for turn in range(rounds):
                for side in [*sides][: 2 if turn else 3]:
                    sides[side].append(epochs(side, folder, network, size))
            key = f"{network}, {size} px"
            found[key] = {side: summary(values, sides["by hand"]) for side, values in sides.items()}
            print(json.dumps({key: found[key]}, indent=2), file=sys.stderr)
    return found


def epochs(side: str, folder: Path, network: str, size: int) -> tuple[float, float]:
    """Images per second over all epochs, and the largest memory in GiB."""
    photos = folder / "photos"
    if side == "by hand":
        words = [str(HERE / "photos_by_hand.py"), "train", str(photos / "train"), network, str(size)]
        process = measured([*words, str(EPOCHS)], folder)
        speeds = process["output"]["images_per_second"]
    else:
        precision = "bf16" if "bf16" in side else "fp32"
        options = (
            f"-m iaa train --data folder:{photos} --model timm/{network} --network.no-pretrained "
            f"--network.head linear --images.size {size} --epochs {EPOCHS} --precision {precision} "
            f"--batch.classes {CLASSES} --batch.per-class {PER_CLASS} --optimizer.lr 1e-4 --device cpu "
            f"--run.out {folder} --run.name run --run.no-untrained --run.logger none --quiet"
        )
        process = measured(options.split(), folder)
        lines = (folder / "run" / "log.jsonl").read_text().splitlines()
        shutil.rmtree(folder / "run")
        speeds = [row["images_per_second"] for row in map(json.loads, lines) if "images_per_second" in row]
    return len(speeds) / sum(1 / speed for speed in speeds), process["memory"] / 2**30


def summary(values: list[tuple[float, float]], by_hand: list[tuple[float, float]]) -> dict[str, Any]:
    speeds, memory = zip(*values, strict=True)
    return {
        "over by hand": ratio(speeds, [speed for speed, _ in by_hand[: len(values)]]),
        "images per second": max(speeds),
        "peak memory, GiB": max(memory),
    }


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        few = NETWORKS[:1], SIZES[:1], 1
        found = measure(Path(folder), *few) if quick else measure(Path(folder), NETWORKS, SIZES, rounds=2)
    result = {"what": __doc__, **found, **environment("torch", "timm", "pytorch-metric-learning")}
    print(json.dumps(result, indent=2))
    if not quick:
        write("training_speed", result)


if __name__ == "__main__":
    main()
