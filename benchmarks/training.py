"""What augmentation adds to a training, statistics included, and what kept memory saves: ratios.

python benchmarks/training.py [part …]     parts: overhead memory (default: both)

Results go to benchmarks/training.json; parts not run keep their former result. Steps are timed as the CPU
seconds of one thread, which a busy machine disturbs less than it does the clock on the wall.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from surroundings import HERE, surroundings, write

from iaa.config import Augment, Batch, Config, Images, Network
from iaa.train import _estimate
from iaa.training.assembly import Task, assemble, launch
from iaa.training.memory import keep_freed_memory

NETWORKS = {
    "lite0, 128 px, batch of 128": Config(
        model="lite0", images=Images(size=128, workers=0), network=Network(dim=512)
    ),
    "convnet, 48 px, batch of 128": Config(images=Images(workers=0)),
}
REFRESH_EVERY = 4


def step(task: Task, batch: Any, *, stream: bool) -> float:
    """CPU seconds of one step, without loading its pictures."""
    begun = time.process_time()
    task.optimizer.zero_grad()
    z = task.model(batch.images)
    if stream:
        task.criterion.augment.update(z.detach(), batch.labels)
    task.fabric.backward(task.criterion(z, batch.labels))
    task.optimizer.step()
    return time.process_time() - begun


def endless(task: Task) -> Iterator[Any]:
    epoch = 0
    while True:
        task.sampler.set_epoch(epoch)
        yield from task.batches
        epoch += 1


def overhead(rounds: int = 6) -> dict[str, Any]:
    """A step with augmentation over one without; a pass's seconds are spread over the steps it serves."""
    found: dict[str, Any] = {}
    for name, config in NETWORKS.items():
        kinds = {
            "baseline": Augment(copies=0),
            "stream": Augment(refresh="stream"),
            "pass": Augment(refresh="pass", refresh_every=REFRESH_EVERY),
        }
        tasks = {}
        for kind, augment in kinds.items():
            one = replace(config, augment=augment, batch=Batch(classes=32, per_class=4), accelerator="cpu")
            tasks[kind] = assemble(one, launch(one))
        begun = time.process_time()
        _estimate(tasks["pass"])
        statistics = time.process_time() - begun
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        batches = endless(tasks["baseline"])
        for _ in range(rounds + 1):
            batch = next(batches)
            for kind, task in tasks.items():
                times[kind].append(step(task, batch, stream=kind == "stream"))
        best = {kind: min(taken[1:]) for kind, taken in times.items()}
        steps = len(tasks["pass"].sampler) * REFRESH_EVERY
        pass_total = best["pass"] + statistics / steps
        found[name] = {
            "stream over baseline": best["stream"] / best["baseline"],
            "pass over baseline": pass_total / best["baseline"],
            "pass over baseline, statistics aside": best["pass"] / best["baseline"],
            "CPU seconds a step": best,
            "CPU seconds of a pass": statistics,
            "steps between passes": steps,
        }
    return found


def memory_probe(keep: bool) -> None:
    """In a process of its own: seconds a step on the clock."""
    if keep:
        keep_freed_memory()
    config = replace(NETWORKS["convnet, 48 px, batch of 128"], accelerator="cpu")
    task = assemble(config, launch(config))
    batches, taken = endless(task), []
    for _ in range(12):
        batch = next(batches)
        begun = time.perf_counter()
        step(task, batch, stream=False)
        taken.append(time.perf_counter() - begun)
    print(json.dumps(min(taken[2:])))


def memory(rounds: int = 4) -> dict[str, Any]:
    """Steps of the small network as glibc comes over steps with freed memory kept, in processes by turns."""
    taken: dict[str, list[float]] = {"as it comes": [], "kept": []}
    for _ in range(rounds):
        for name, values in taken.items():
            words = [sys.executable, __file__, "--memory-probe", name]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            values.append(json.loads(done.stdout.splitlines()[-1]))
    ratio = min(taken["as it comes"]) / min(taken["kept"])
    middle = median(taken["as it comes"]) / median(taken["kept"])
    return {"as it comes over kept": ratio, "of medians": middle, "seconds a step": taken}


PARTS = {"overhead": overhead, "memory": memory}


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    former = HERE / "training.json"
    result = json.loads(former.read_text()) if former.exists() else {}
    for name in names or PARTS:
        result[name] = {
            "what": PARTS[name].__doc__,
            **PARTS[name](),
            **surroundings("torch", "lightning-fabric"),
        }
        print(json.dumps({name: result[name]}, indent=2))
        write("training", result)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory-probe"]:
        memory_probe(sys.argv[2] == "kept")
    else:
        main(sys.argv[1:])
