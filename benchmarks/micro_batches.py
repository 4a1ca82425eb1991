"""Memory of one training step with `batch.micro`: a large batch through the network in parts.

    python benchmarks/micro_batches.py

Lite0 with frozen batch norm and a contrastive loss over the whole batch; each setting runs in a process of
its own. Gradients of parts are compared with those of the whole batch in float64, where they are equal but
for rounding, and in float32, where the rounding of convolutions depends on how many images they see. Writes
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


def difference(dtype: torch.dtype) -> float:
    """Relative distance between the gradients of a batch of 32 in parts of 8 and as a whole."""
    torch.manual_seed(0)
    network = build("lite0", dim=64, freeze_bn=True, size=64).train().to(dtype)
    images, labels = torch.randn(32, 3, 64, 64, dtype=dtype), torch.arange(32) // 4
    loss = build_loss("multi_similarity", num_classes=8, dim=64).loss

    def gradient(micro: int | None) -> torch.Tensor:
        network.zero_grad()
        loss(embed_in_parts(network, images, micro=micro), labels).backward()
        return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])

    whole = gradient(None)
    return float((gradient(8) - whole).norm() / whole.norm())


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
    result["difference"] = {"float64": difference(torch.float64), "float32": difference(torch.float32)}
    write("micro_batches", result)
    (HERE / "micro_batches.md").write_text(page(result))


def page(result: dict[str, Any]) -> str:
    """The table in Markdown."""
    rows = [[str(row["micro"] or "whole"), f"{row['bytes'] / 2**30:.2f}"] for row in result["rows"]]
    batch, size = result["batch"], result["size"]
    about = f"A step of {batch} images of {size} px through Lite0, in parts (`batch.micro`)."
    table = "\n".join(grid(["images in a part", "memory of the step, GiB"], rows))
    apart = " and ".join(f"{value:.0e} in {name}" for name, value in result["difference"].items())
    equal = f"Relative distance of the gradients from those of the whole batch: {apart}."
    return f"# Micro-batches\n\n{about}\n\n{table}\n{equal} Commit {result['commit']}, {result['date']}.\n"


if __name__ == "__main__":
    main()
