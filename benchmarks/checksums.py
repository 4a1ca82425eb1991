"""What verifying a file costs: reading with its checksum against reading without, and against scoring it.

python benchmarks/checksums.py       # ratios of the fastest of several runs, into checksums.json
"""

import json
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from iaa.files import read_tensors, write_tensors
from iaa.retrieval.metrics import score_queries

HERE = Path(__file__).parent
ROWS, DIM, CLASSES = 5924, 512, 100


def fastest(function, repeats: int = 9) -> tuple[float, float]:
    """The fastest run and the spread (slowest over fastest)."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds), max(seconds) / min(seconds)


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(ROWS, DIM, generator=generator)
    labels = torch.arange(ROWS) % CLASSES
    with tempfile.TemporaryDirectory() as name:
        checked, plain = Path(name) / "checked.safetensors", Path(name) / "plain.safetensors"
        write_tensors(checked, {"z": z, "labels": labels})
        save_file({"z": z, "labels": labels}, plain)
        runs = {
            "read, verified": fastest(lambda: read_tensors(checked)),
            "read, no checksum": fastest(lambda: read_tensors(plain)),
            "safetensors load_file, every row touched": fastest(lambda: load_file(plain)["z"].sum()),
            "write, with checksum": fastest(lambda: write_tensors(checked, {"z": z, "labels": labels})),
            "scores": fastest(lambda: score_queries(z, labels, depth=8), 3),
        }
    base, scores = runs["read, no checksum"][0], runs["scores"][0]
    result = {
        "file": f"{ROWS} x {DIM} float32",
        "ratios": {
            name: {"of reading": seconds / base, "of scoring": seconds / scores, "spread": spread}
            for name, (seconds, spread) in runs.items()
        },
    }
    (HERE / "checksums.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
