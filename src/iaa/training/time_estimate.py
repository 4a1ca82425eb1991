"""The time of a run: each kind of work is done for a few seconds, and scaled to how much of it there is."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from iaa.config import Config
from iaa.data import Dataset
from iaa.data.image_dataset import Batch
from iaa.data_source import Batches, ImageSource, build_network, classes_of
from iaa.embed import PRECISIONS, embed_batches, resolve_device
from iaa.method.whitening import Whitening
from iaa.models import Embedder
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.metrics import score_queries
from iaa.training import distributed, scoring
from iaa.training.features import uncached
from iaa.training.finalize import at_own_size
from iaa.training.gradient_cache import embed_in_parts
from iaa.training.rungs import FOLDS, HELD_OUT, fine_tuning, head_recipe, judged_recipe, trained_dim
from iaa.training.schedules import streams_during
from iaa.training.setup import Task, assemble, launch
from iaa.training.workload import workload

LEAST_SECONDS, LEAST_BATCHES = 2.0, 2
"""For how long a kind of work is done."""
SCORED = 2048
"""Rows on which scoring is timed; its time grows with their square."""
IF_BETTER = "fine-tuning on all classes"
"""The part that is done only if fine-tuning was better on held-out classes."""

Seconds = dict[str, float]
"""By part of a run."""


class Pace(NamedTuple):
    """Seconds for a batch and for a sample."""

    batch: float
    sample: float


def run_seconds(task: Task) -> Seconds:
    """Of one training, from the first image to the last score."""
    work, val = workload(task), task.source.dataset.part("val")
    labels = torch.from_numpy(task.train.labels).to(task.fabric.device)
    training = statistics = 0.0
    if work.steps:
        augment = task.criterion.augment
        z = torch.randn(len(labels), augment.dim, device=labels.device)  # any values take as long
        estimate = _timed(lambda: augment.fit(z, labels))
        first, later = (_pace(task.batches, lambda batch: _step(task, batch)).batch for _ in range(2))
        epoch = min(len(task.sampler), work.steps)
        training = epoch * first + (work.steps - epoch) * later
        statistics = estimate * work.images["statistics"] / len(labels)
    if work.images["head"]:
        statistics += _whitening_seconds(int(task.network.features), labels)  # type: ignore[arg-type]
    first, later = (_pace(task.statistics_batches, _embedding(task, task.network)).sample for _ in range(2))

    def passes(images: int, rows: int) -> float:
        """Seconds for images that are decoded once and cached from then on."""
        return later * images + (first - later) * min(images, rows)

    statistics += passes(work.images["head"] + work.images["statistics"], len(labels))
    validation = passes(work.images["validation"], len(val))
    if len(val):
        validation += work.images["validation"] / len(val) * _scoring_seconds(val, _dim(task))
    return {
        "training": training,
        "class statistics": statistics,
        "validation": validation,
        "scores": _test_seconds(task, work.images, first),
    }


def ladder_seconds(config: Config, source: ImageSource, frozen: Embedder) -> Seconds:
    """Of the comparison of heads on features of the frozen network, and of fine-tuning with high effort."""
    train = source.dataset.part("train")
    parts = {"train": train, **source.tests}
    passes = [(config, frozen, parts)]
    if frozen.own_size != frozen.preprocessing["size"]:
        own = at_own_size(config)
        passes.append((own, _bare(own, source), source.tests))
    seconds = dict.fromkeys(("features", "heads", "scores"), 0.0)
    for wanted, network, images in passes:
        if number := uncached(wanted, source, network, images):
            device = resolve_device(config.device)
            embed = _embedding_on(network.to(device), device, config.precision)
            seconds["features"] += number * _pace(source.in_order(train, network.preprocessing), embed).sample
    labels = torch.from_numpy(train.labels)
    seconds["heads"] = (FOLDS + 1) * _whitening_seconds(frozen.features, labels)
    rungs = 2 if config.effort == "quick" else 3
    held_out = train.hold_out(HELD_OUT, seed=config.seed).part("val")
    tests = sum(_scoring_seconds(part, frozen.features) for part in source.tests.values())
    seconds["scores"] = rungs * FOLDS * _scoring_seconds(held_out, frozen.features)
    seconds["scores"] += (rungs + len(passes) - 1) * tests
    if config.effort != "quick":
        recipe = head_recipe(config, trained_dim(config, frozen), Path(config.run.out) / "head")
        head = assemble(recipe, launch(recipe), data=_random_features(source, frozen.features))
        seconds["heads"] += (1 + FOLDS * (1 - HELD_OUT)) * sum(run_seconds(head).values())
    if config.effort == "high":
        whole = fine_tuning(replace(config, run=replace(config.run, untrained=False)))
        for name, recipe in (("fine-tuning", judged_recipe(whole)), (IF_BETTER, whole)):
            task = assemble(recipe, launch(recipe), known=classes_of(source))
            seconds[name] = sum(run_seconds(task).values())
    return seconds


def _test_seconds(task: Task, images: dict[str, int], pace: float) -> float:
    """Of all passes over the test sets and their scores; ``pace`` is that of the network itself."""
    test = next(iter(task.source.tests.values()))
    seconds = pace * images["tests"]
    if images["raw features"]:
        raw = task.source.raw_features()[1]
        batches = scoring.rank_batches(task, test, task.preprocessing)
        seconds += images["raw features"] * _pace(batches, _embedding(task, raw)).sample
    if images["own size"]:
        network = _bare(at_own_size(task.config), task.source).to(task.fabric.device)
        batches = scoring.rank_batches(task, test, network.preprocessing)
        seconds += images["own size"] * _pace(batches, _embedding(task, network)).sample
    tests = sum(map(len, task.source.tests.values()))
    times = sum(images[purpose] for purpose in ("tests", "raw features", "own size")) / max(tests, 1)
    return seconds + times * sum(_scoring_seconds(part, _dim(task)) for part in task.source.tests.values())


def _pace(batches: Batches, work: Callable[[Batch], Any]) -> Pace:
    """Do the work on the first batches as they are loaded; several ranks do the same number."""
    began, number, samples = time.monotonic(), 0, 0
    for batch in batches:
        work(batch)
        number, samples = number + 1, samples + len(batch.labels)
        seconds = time.monotonic() - began
        if number >= LEAST_BATCHES and (seconds >= LEAST_SECONDS or distributed.active()):
            break
    return Pace(seconds / number, seconds / samples) if number else Pace(0.0, 0.0)


def _step(task: Task, batch: Batch) -> None:
    """A step as ``iaa.train`` does it."""
    task.optimizer.zero_grad()
    z = embed_in_parts(task.model, task.put(batch.images), micro=task.config.batch.micro)
    z, labels = distributed.gather(z.float(), batch.labels.to(z.device))
    if streams_during(task.config.augment, task.config.augment.start_epoch):
        task.criterion.augment.update(z.detach(), labels)
    task.fabric.backward(task.criterion(z, labels))
    distributed.average_gradients(task.criterion)
    if clip := task.config.optimizer.clip:
        task.fabric.clip_gradients(task.model, task.optimizer, max_norm=clip)
    task.optimizer.step()
    if task.average is not None:
        task.average.update(task.network)


def _embedding(task: Task, network: nn.Module) -> Callable[[Batch], Any]:
    return lambda batch: scoring.embed(task, network, [batch])


def _embedding_on(network: nn.Module, device: torch.device, precision: str) -> Callable[[Batch], Any]:
    return lambda batch: embed_batches(network, [batch], device=device, precision=PRECISIONS[precision])


def _dim(task: Task) -> int:
    return int(task.network.dim)  # type: ignore[arg-type]


def _scoring_seconds(part: Dataset, dim: int) -> float:
    """Of R@K, RP and MAP@R on a part, whatever its embeddings are."""
    labels = torch.from_numpy(part.labels[:SCORED])
    if len(labels) < 2 or int(labels.unique(return_counts=True)[1].max()) < 2:
        return 0.0
    z = torch.randn(len(labels), dim)
    return _timed(lambda: score_queries(z, labels)) * (len(part) / len(labels)) ** 2


def _whitening_seconds(features: int, labels: Tensor) -> float:
    z = torch.randn(len(labels), features)
    return _timed(lambda: Whitening().fit(z, labels.cpu()))


def _timed(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _bare(config: Config, source: Any) -> Embedder:
    network = build_network(replace(config, network=replace(config.network, head="none")), source)
    assert isinstance(network, Embedder)
    return network


def _random_features(source: ImageSource, width: int) -> Embeddings:
    """As many features of the same classes as the frozen network gives."""
    parts = [source.dataset.part("train"), next(iter(source.tests.values()))]
    labels = torch.cat([torch.from_numpy(part.labels) for part in parts])
    split = [name for part in parts for name in part.split.tolist()]
    ids = [str(number) for number in range(len(labels))]
    return Embeddings(torch.randn(len(labels), width), labels, ids, split=split)
