"""How long commands take to start, as multiples of `python -c "import torch"`, in processes by turns.

python benchmarks/startup.py [--quick]

Times are CPU seconds of the process, which other programs disturb less than they do the clock on the wall.
Results go to benchmarks/startup.json; --quick runs everything once and writes nothing.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from measurement import environment, ratio, write
from PIL import Image

import iaa
from iaa.cli import VERBS
from iaa.config import Images, Network, RunOptions


def small_run(folder: Path) -> tuple[Path, Path]:
    """A run of an untrained Lite0 on 80 small images, and one of them."""
    generator = np.random.default_rng(0)
    for number in range(80):
        path = folder / "images" / f"class {number // 8}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(path)
    config = iaa.Config(
        data=f"folder:{folder / 'images'}",
        model="lite0",
        network=Network(head="none", pretrained=False),
        images=Images(size=64),
        run=RunOptions(out=str(folder), name="run", logger="none"),
    )
    return iaa.train(config, quiet=True).path, path


def cpu_seconds(words: list[str]) -> float:
    """User and system time of a new process; the exit code of a wrong argument is expected to be 2."""
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != (2 if "--no-such-option" in words else 0):
        raise RuntimeError(f"{' '.join(words)} ended with exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def measure(rounds: int, folder: Path) -> dict[str, Any]:
    run, image = small_run(folder)
    commands = {
        "iaa --help": ["--help"],
        "iaa --version": ["--version"],
        "completion script": ["--print-completion", "bash"],
        "wrong argument": ["train", "--no-such-option"],
        **{f"iaa {verb} --help": [verb, "--help"] for verb in VERBS},
        "iaa evaluate, a file of 16 rows": ["evaluate", str(run / "embeddings.safetensors")],
        "iaa search, one image": ["search", str(run), str(image)],
    }
    contenders = {"import torch": ["-c", "import torch"]}
    contenders |= {name: ["-m", "iaa", *words] for name, words in commands.items()}
    cpu_seconds(contenders["iaa search, one image"])  # embeds the gallery
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, words in contenders.items():
            taken[name].append(cpu_seconds(words))
    base = taken.pop("import torch")
    return {
        "over import torch": {name: ratio(values, base) for name, values in taken.items()},
        "CPU seconds": {name: min(values) for name, values in {"import torch": base, **taken}.items()},
        "rounds": rounds,
    }


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        found = measure(1 if quick else 7, Path(folder))
    result = {"what": __doc__, **found, **environment("torch", "tyro")}
    print(json.dumps(result, indent=2))
    if not quick:
        write("startup", result)


if __name__ == "__main__":
    main()
