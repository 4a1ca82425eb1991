"""Memory of one training step with `batch.micro`: a large batch through the network in parts.

    python benchmarks/micro_batches.py

Lite0 with frozen batch norm and a contrastive loss over the whole batch; each setting runs in a process of
its own. That gradients are those of the whole batch is a test (tests/training/test_gradient_cache.py). Writes
micro_batches.json and micro_batches.md.
"""

import argparse
import json
import subprocess
import sys
from typing import Any

import torch
from markdown_tables import grid
from measurement import HERE, environment, memory_held, write

from iaa.losses import build as build_loss
from iaa.models import build
from iaa.training.gradient_cache import embed_in_parts

MICRO = (None, 32, 8)


def step(batch: int, size: int, micro: int | None) -> dict[str, Any]:
    """One step: the bytes that it needed beyond the network and its images."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = build("lite0", dim=128, pretrained=False, freeze_bn=True, size=size).train()
    images, labels = torch.randn(batch, 3, size, size), torch.arange(batch) // 4
    loss = build_loss("contrastive", num_classes=batch // 4, dim=128).loss
    before = memory_held()
    loss(embed_in_parts(network, images, micro=micro), labels).backward()
    return {"micro": micro, "bytes": memory_held(at_most=True) - before}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--step", type=int, help="one step with parts of this size, 0 for the whole")
    words = parser.parse_args()
    if words.step is not None:
        print(json.dumps(step(words.batch, words.size, words.step or None)))
        return
    command = [sys.executable, __file__, "--batch", str(words.batch), "--size", str(words.size), "--step"]
    rows = [
        json.loads(subprocess.run([*command, str(micro or 0)], capture_output=True, check=True).stdout)
        for micro in MICRO
    ]
    result = {"batch": words.batch, "size": words.size, "rows": rows} | environment("torch", "timm")
    write("micro_batches", result)
    (HERE / "micro_batches.md").write_text(page(result))


def page(result: dict[str, Any]) -> str:
    """The table in Markdown."""
    rows = [[str(row["micro"] or "whole"), f"{row['bytes'] / 2**30:.2f}"] for row in result["rows"]]
    batch, size = result["batch"], result["size"]
    about = f"A step of {batch} images of {size} px through Lite0, in parts (`batch.micro`)."
    table = "\n".join(grid(["images in a part", "memory of the step, GiB"], rows))
    return f"# Micro-batches\n\n{about}\n\n{table}\nCommit {result['commit']}, {result['date']}.\n"


if __name__ == "__main__":
    main()
