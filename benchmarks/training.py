"""What augmentation adds to a training, statistics included, and what kept memory saves: ratios.

python benchmarks/training.py [--quick] [part …]     parts: overhead memory (default: both)

Results go to benchmarks/training.json; parts not run keep their former result. Augmentation is timed as the
CPU seconds of one thread, which a busy machine disturbs less than it does the clock on the wall. --quick runs
little once and writes nothing.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
from measurement import HERE, environment, write
from torch import Tensor

from iaa.allocator import keep_freed_memory
from iaa.config import Augment, BatchOptions, Config, Images, Network
from iaa.train import _estimate
from iaa.training.setup import Task, assemble, launch

NETWORKS = {
    "lite0, 128 px, batch of 128": Config(
        model="lite0", images=Images(size=128, workers=0), network=Network(dim=512)
    ),
    "convnet, 48 px, batch of 128": Config(
        model="convnet", images=Images(workers=0), network=Network(dim=128)
    ),
}
REFRESH_EVERY = 4


def step(task: Task, batch: Any) -> float:
    """CPU seconds of one whole step, without loading its images."""
    begun = time.process_time()
    task.optimizer.zero_grad()
    task.fabric.backward(task.criterion(task.model(batch.images), batch.labels))
    task.optimizer.step()
    return time.process_time() - begun


def loss_part(task: Task, z: Tensor, labels: Tensor, *, stream: bool) -> float:
    """CPU seconds of what differs between the kinds: batch statistics, synthetics, loss, gradient."""
    leaf = z.detach().requires_grad_()
    begun = time.process_time()
    if stream:
        task.criterion.augment.update(leaf.detach(), labels)
    task.criterion(leaf, labels).backward()
    return time.process_time() - begun


def endless(task: Task) -> Iterator[Any]:
    epoch = 0
    while True:
        task.sampler.set_epoch(epoch)
        yield from task.batches
        epoch += 1


def overhead(rounds: int = 40, networks: tuple[str, ...] = tuple(NETWORKS)) -> dict[str, Any]:
    """What augmentation adds to a step without it; a pass's seconds are spread over the steps it serves.

    Whole steps vary by more than that, so the part that differs is timed by itself, by turns.
    """
    found: dict[str, Any] = {}
    kinds = {
        "baseline": Augment(copies=0),
        "stream": Augment(refresh="stream"),
        "pass": Augment(refresh="pass", refresh_every=REFRESH_EVERY),
    }
    for name in networks:
        config, tasks = NETWORKS[name], {}
        for kind, augment in kinds.items():
            one = replace(config, augment=augment, batch=BatchOptions(classes=32, per_class=4), device="cpu")
            tasks[kind] = assemble(one, launch(one))
        begun = time.process_time()
        _estimate(tasks["pass"])
        statistics = time.process_time() - begun
        batches = endless(tasks["baseline"])
        whole = min(step(tasks["baseline"], next(batches)) for _ in range(5))
        batch = next(batches)
        with torch.no_grad():
            z = tasks["baseline"].network(batch.images)
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, task in tasks.items():
                times[kind].append(loss_part(task, z, batch.labels, stream=kind == "stream"))
        best = {kind: min(taken[1:]) for kind, taken in times.items()}
        added = {kind: best[kind] - best["baseline"] for kind in ("stream", "pass")}
        steps = len(tasks["pass"].sampler) * REFRESH_EVERY
        every = sorted(times["stream"])[:-1]  # without the slowest, a cold first round
        spread = [1 + (taken - best["baseline"]) / whole for taken in (every[0], every[-1])]
        found[name] = {
            "stream over baseline": 1 + added["stream"] / whole,
            "stream over baseline, range of rounds": spread,
            "pass over baseline": 1 + (added["pass"] + statistics / steps) / whole,
            "pass over baseline, statistics aside": 1 + added["pass"] / whole,
            "CPU seconds of a baseline step": whole,
            "CPU seconds of the part that differs": best,
            "CPU seconds of a pass": statistics,
            "steps between passes": steps,
        }
    return found


def memory_probe(keep: bool) -> None:
    """In a process of its own: seconds a step on the clock."""
    if keep:
        keep_freed_memory()
    config = replace(NETWORKS["convnet, 48 px, batch of 128"], device="cpu")
    task = assemble(config, launch(config))
    batches, taken = endless(task), []
    for _ in range(12):
        batch = next(batches)
        begun = time.perf_counter()
        step(task, batch)
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
QUICK = {
    "overhead": partial(overhead, rounds=3, networks=("convnet, 48 px, batch of 128",)),
    "memory": partial(memory, rounds=1),
}


def main(names: list[str], *, quick: bool) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()  # as the command line does
    former = HERE / "training.json"
    result = json.loads(former.read_text()) if former.exists() else {}
    for name in names or PARTS:
        found = QUICK[name]() if quick else PARTS[name]()
        result[name] = {"what": PARTS[name].__doc__, **found, **environment("torch", "lightning-fabric")}
        print(json.dumps({name: result[name]}, indent=2))
        if not quick:
            write("training", result)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory-probe"]:
        memory_probe(sys.argv[2] == "kept")
    else:
        main([word for word in sys.argv[1:] if word != "--quick"], quick="--quick" in sys.argv)
