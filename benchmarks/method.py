"""What the method costs: ratios of contenders that take turns in one run.

python benchmarks/method.py [--quick] [part …]    parts: correction memory growth boosting step (default: all)

Results go to benchmarks/method.json; parts not run keep their former result. --quick writes nothing.
"""

import json
import subprocess
import sys
import time
from functools import partial
from typing import Any

import torch
from measurement import HERE, environment, memory_held, ratio, take_turns, timed_turns, write
from pytorch_metric_learning.losses import MultiSimilarityLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from torch import Tensor

import iaa
from iaa.losses import HardPairs
from iaa.method.correction import lenders
from iaa.method.gaussians import ClassStats


def sop_like() -> tuple[Tensor, Tensor, int]:
    """As many samples, classes and dimensions as the training part of Stanford Online Products."""
    samples, classes, dim = 59_551, 11_318, 512
    labels = torch.cat([torch.arange(classes).repeat(2), torch.randint(classes, (samples - 2 * classes,))])
    return torch.randn(classes, dim)[labels] + 0.5 * torch.randn(samples, dim), labels, classes


def random_stats(classes: int, dim: int = 512) -> ClassStats:
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(classes // 50, dim, generator=generator)
    mean = centers[torch.arange(classes) % len(centers)]
    mean += 0.5 * torch.randn(classes, dim, generator=generator)
    variance = torch.rand(classes, dim, generator=generator)
    return ClassStats(torch.randint(2, 12, (classes,), generator=generator), mean, variance)


def correction() -> dict[str, Any]:
    """estimate + correct against the products and topk they cannot avoid, and against a loop over classes."""
    z, labels, classes = sop_like()
    stats = iaa.estimate(z, labels, num_classes=classes)
    squared, variance, rows = stats.mean.square(), stats.variance, 185
    buffer = torch.empty(rows, classes)
    looped = 150

    def ours() -> None:
        iaa.correct(iaa.estimate(z, labels, num_classes=classes))

    def bare() -> None:
        for start in range(0, classes, rows):
            block = slice(start, start + rows)
            out = buffer[: len(squared[block])]
            torch.mm(squared[block], squared.T, out=out)
            out.topk(25, largest=False)
            torch.mm(variance[block], variance.T, out=out)

    def loop() -> None:
        for k in range(looped):
            members = z[labels == k]
            mean, own = members.mean(0), members.var(0, correction=0)
            d_mean = (squared - mean.square()).norm(dim=1)
            d_cov = (variance - own).norm(dim=1)
            d_mean[k] = d_cov[k] = torch.inf
            near = d_mean.topk(25, largest=False).indices
            weights = (stats.count[near].log() - d_mean[near] ** 2 / 2 - d_cov[near] ** 2 / 2).softmax(0)
            (weights[:, None] * variance[near]).sum(0)

    best = take_turns({"ours": ours, "bare": bare, "loop": loop}, rounds=3)
    loop_whole = best["loop"] * classes / looped
    return {
        "size": f"{len(z)} x {z.shape[1]}, {classes} classes",
        "over bare products and topk": best["ours"] / best["bare"],
        "loop over classes is slower by": loop_whole / best["ours"],
        "note": f"the loop ran for {looped} classes and is scaled to all",
        "seconds": {**best, "loop": loop_whole},
    }


def memory_probe(classes: int) -> None:
    """In a process of its own: memory above the inputs."""
    stats = random_stats(classes)
    before = memory_held()
    start = time.perf_counter()
    iaa.correct(stats)
    print(json.dumps({"bytes": memory_held(at_most=True) - before, "seconds": time.perf_counter() - start}))


def memory() -> dict[str, Any]:
    """Peak above the inputs for 100,000 classes, exact search."""
    words = [sys.executable, __file__, "--memory-probe", "100000"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return {
        "classes": 100_000,
        "dim": 512,
        "GB above inputs": found["bytes"] / 1e9,
        "seconds": found["seconds"],
    }


def growth(sizes: tuple[int, ...] = (10_000, 30_000, 100_000)) -> dict[str, Any]:
    """Exact against approximate neighbour search as classes grow; how many neighbours both find."""
    found = {}
    for classes in sizes:
        stats, everyone = random_stats(classes), torch.arange(classes)
        start = time.perf_counter()
        near, _ = lenders(stats, everyone, search="approximate")
        approximate = time.perf_counter() - start
        some = everyone[:: classes // 1000]
        start = time.perf_counter()
        exact, _ = lenders(stats, some)
        exact_time = (time.perf_counter() - start) * classes / len(some)
        shared = (near[some][:, :, None] == exact[:, None]).any(2).float().mean()
        found[str(classes)] = {
            "approximate seconds": approximate,
            "exact seconds (scaled from 1000 classes)": exact_time,
            "exact over approximate": exact_time / approximate,
            "neighbours shared": float(shared),
        }
    times = [row["approximate seconds"] for row in found.values()]
    steps = zip(sizes, sizes[1:], times, times[1:], strict=False)
    found["growth of approximate"] = {f"{a} to {b} classes": late / early for a, b, early, late in steps}
    return found


def boosting(rounds: int = 15) -> dict[str, Any]:
    """Multi-similarity with its miner, B = 128, D = 512, M = 3: boosted over plain, forward and backward.

    Plain is PML's loss with PML's miner. Boosted has either that miner or that of `iaa.losses`.
    """
    labels = torch.arange(128) // 4
    z = (0.4 * torch.randn(32, 512)[labels] + torch.randn(128, 512)).requires_grad_()
    augment = iaa.IAA(32, 512).fit(z, labels)
    loss, miner = MultiSimilarityLoss(), MultiSimilarityMiner()

    def plain() -> None:
        for _ in range(20):
            loss(z, labels, miner(z, labels)).backward()

    def with_synthetics(criterion: iaa.BoostedLoss) -> None:
        for _ in range(20):
            criterion(z, labels).backward()

    contenders = {
        "plain": plain,
        "boosted": partial(with_synthetics, iaa.BoostedLoss(loss, augment, HardPairs())),
        "boosted, PML's miner": partial(with_synthetics, iaa.BoostedLoss(loss, augment, miner)),
    }
    taken = timed_turns(contenders, rounds=rounds)
    ratios = {
        f"{name} over plain": ratio(taken[name], taken["plain"]) for name in contenders if name != "plain"
    }
    return {**ratios, "milliseconds": {name: min(values) / 20 * 1e3 for name, values in taken.items()}}


def step(rounds: int = 3) -> dict[str, Any]:
    """The share of BoostedLoss in a GoogLeNet training step at batch 128, 224 x 224."""
    from iaa.torchvision_compat import torchvision

    network = torchvision().models.googlenet(
        weights=None, init_weights=False, aux_logits=False, num_classes=512
    )
    optimizer = torch.optim.Adam(network.parameters())
    labels, images = torch.arange(128) // 4, torch.randn(128, 3, 224, 224)
    augment = iaa.IAA(32, 512).fit(torch.randn(128, 512), labels)
    boosted = iaa.BoostedLoss(MultiSimilarityLoss(), augment, MultiSimilarityMiner())
    shares, extra = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        z = network(images)
        leaf = z.detach().requires_grad_()
        begun = time.perf_counter()
        boosted(leaf, labels).backward()
        loss_time = time.perf_counter() - begun
        begun = time.perf_counter()
        plain = boosted.loss(leaf, labels, boosted.miner(leaf, labels))
        plain.backward()
        plain_time = time.perf_counter() - begun
        optimizer.zero_grad()
        z.backward(leaf.grad)
        optimizer.step()
        whole = time.perf_counter() - start - plain_time
        shares.append(loss_time / whole)
        extra.append((loss_time - plain_time) / whole)
    return {"share of a step": min(shares), "beyond the plain loss": min(extra)}


PARTS = {
    "correction": correction,
    "memory": memory,
    "growth": growth,
    "boosting": boosting,
    "step": step,
}


QUICK = {"growth": partial(growth, (1_000, 2_000)), "boosting": partial(boosting, rounds=3)}


def main(names: list[str], *, quick: bool) -> None:
    torch.manual_seed(0)
    former = HERE / "method.json"
    result = json.loads(former.read_text()) if former.exists() else {}
    where = environment("torch", "pytorch-metric-learning", "faiss-cpu")
    for name in names or (QUICK if quick else PARTS):
        found = QUICK[name]() if quick else PARTS[name]()
        result[name] = {"what": PARTS[name].__doc__, **found, **where}
        print(json.dumps({name: result[name]}, indent=2))
        if not quick:
            write("method", result)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory-probe"]:
        memory_probe(int(sys.argv[2]))
    else:
        main([word for word in sys.argv[1:] if word != "--quick"], quick="--quick" in sys.argv)
