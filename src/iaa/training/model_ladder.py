"""The best model for a set of images: rungs from frozen to fine-tuned, chosen on held-out training classes.

Features of the frozen network are computed once. Every rung is judged on training classes that it has not
seen, several times with other classes held out; then it is made from all training classes and scored on the
test classes, which choose nothing.
"""

import logging
import os
import shutil
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iaa.config import Config
from iaa.data.dataset import ClassSplit, Ids, draw_classes
from iaa.data_source import (
    ImageSource,
    build_network,
    check_classes,
    classes_in_both,
    classes_of,
    open_data,
)
from iaa.errors import need
from iaa.files import write_json, write_text
from iaa.method.augment import IAA
from iaa.models import Embedder
from iaa.models.heads import head_dim
from iaa.retrieval.embeddings import Embeddings
from iaa.runs import CONFIG, LOG, METRICS, MODEL, STATISTICS, TRAINING, Run
from iaa.training import scoring
from iaa.training.features import cached_features
from iaa.training.finalize import at_own_size, save_module
from iaa.training.rungs import FOLDS, HELD_OUT, Make, Rung, Train, chosen_config, fine_tuned_rung, head_rungs
from iaa.training.setup import list_unreadable

LEAST_CLASSES = 4
"""Training classes that are needed to hold some of them out."""

_log = logging.getLogger("iaa.train")


def climb(
    config: Config,
    train: Train,
    *,
    run: Run | None = None,
    classes: ClassSplit | None = None,
    quiet: bool = False,
) -> Run:
    """Compare the rungs, make the best one the model of a run, and return the run.

    ``train`` is ``iaa.train``. An interrupted run continues with the rungs that are not finished.
    """
    source, frozen = open_ladder(config, classes)
    run = Run.create(config, data=source) if run is None else Run(run, data=source)
    with run.lock():
        _log.info("%s\n%s", frozen.describe(), run.path)
        began = time.monotonic()
        parts = {"train": source.dataset.part("train"), **source.tests}
        features = cached_features(config, source, frozen, parts, quiet=quiet)
        rungs = head_rungs(config, run, frozen, train)
        for rung in rungs:
            assert rung.make is not None
            _judge(rung, rung.make, features["train"], config)
            if not rung.left_out:
                rung.head = rung.make(_with_tests(features), rung.name)
        if config.effort == "high":
            names = features["train"].class_names or {}
            held_out = [names[label] for label in _held_out(features["train"], config, fold=0).tolist()]
            rungs.append(
                fine_tuned_rung(
                    config, run, train, rungs, classes=classes_of(source), held_out=held_out, quiet=quiet
                )
            )
        untrained = _at_own_size(config, source, frozen, quiet=quiet)
        seconds = time.monotonic() - began
        _finish(run, source, frozen, features, rungs, _choose(rungs), untrained, seconds)
    return Run(run.path, data=source)  # with the configuration that was chosen


def open_ladder(config: Config, classes: ClassSplit | None = None) -> tuple[ImageSource, Embedder]:
    """The data, looked at for what would stop the comparison later, and the frozen network."""
    if config.devices > 1 or int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise ValueError(
            "heads are compared on one device: leave --devices out, or name a head (--network.head linear)"
        )
    if config.effort == "high" and config.split.per_class is not None:
        raise ValueError(
            "--effort high judges fine-tuning on all images of held-out classes and heads on few: leave "
            "--split.per-class out, or fine-tune with --network.head linear"
        )
    if config.effort != "quick":  # a head is trained, after minutes of computing features
        need("lightning_fabric", extra="train")
    source = open_data(config, classes)
    assert isinstance(source, ImageSource)  # vectors have a linear head unless another is named
    if classes is not None:
        check_classes(source, classes, config)
    source.check_images()
    list_unreadable(source)
    _check_sizes(source, config)
    bare = replace(config.network, head="none", freeze_backbone=True)
    frozen = build_network(replace(config, network=bare), source)
    assert isinstance(frozen, Embedder)
    return source, frozen


def _at_own_size(
    config: Config, source: ImageSource, frozen: Embedder, *, quiet: bool
) -> dict[str, scoring.TestScores]:
    """The frozen network's scores at the image size it was made for, if the rungs have another."""
    if frozen.own_size == frozen.preprocessing["size"]:
        return {}
    wanted = at_own_size(config)
    network = build_network(replace(wanted, network=replace(config.network, head="none")), source)
    assert isinstance(network, Embedder)
    features = cached_features(wanted, source, network, source.tests, quiet=quiet)
    scores = {name: scoring.scores(data, source.tests[name].ks) for name, data in features.items()}
    return {f"frozen ({frozen.own_size} px)": scores}


def _held_out(data: Embeddings, config: Config, *, fold: int) -> Ids:
    """The training classes that are held out in a fold."""
    return draw_classes(np.unique(data.labels.numpy()), HELD_OUT, seed=config.seed + fold)


def _judge(rung: Rung, make: Make, data: Embeddings, config: Config) -> None:
    """Score a rung on training classes that are held out in turns; what fails is left out with its reason."""
    try:
        for fold in range(FOLDS):
            held_out = np.isin(data.labels.numpy(), _held_out(data, config, fold=fold))
            part = replace(data, split=np.where(held_out, "test", "train").tolist())
            head = make(part, f"{rung.name}-{fold}")
            rung.held_out.append(_score(head, part.rows(part.where(split="test"))))
    except ValueError as error:
        if rung.name == "frozen":
            raise
        rung.left_out, rung.held_out = str(error), []
        _log.warning("%s is left out: %s", rung.name, error)
        return
    _log.info("%s: MAP@R %.1f on held-out training classes", rung.name, rung.mean("MAP@R"))


def _choose(rungs: list[Rung]) -> Rung:
    """The rung with the best MAP@R on held-out classes; of equals, the simpler one."""
    tuned = [rung for rung in rungs if rung.run is not None]
    if tuned:
        return tuned[0]
    return max((rung for rung in rungs if rung.head is not None), key=lambda rung: rung.mean("MAP@R"))


def _score(head: nn.Module, data: Embeddings, ks: tuple[int, ...] = (1,)) -> dict[str, float]:
    return scoring.scores(replace(data, z=_apply(head, data.z)), ks)


@torch.no_grad()
def _apply(head: nn.Module, z: Tensor) -> Tensor:
    head = head.cpu().eval()
    return torch.cat([head(part.float()) for part in z.split(8192)])


def _with_tests(features: dict[str, Embeddings]) -> Embeddings:
    """Training and test rows in one object, as a run on vectors takes them; of several test sets, one."""
    train, test = features["train"], next(data for name, data in features.items() if name != "train")
    names = {**(train.class_names or {}), **(test.class_names or {})}
    columns = ([*first, *second] for first, second in ((train.ids, test.ids), (train.split, test.split)))
    ids, split = columns
    return Embeddings(
        torch.cat([train.z, test.z]),
        torch.cat([train.labels, test.labels]),
        ids,
        names,
        split,
        [*train.role, *test.role],
        train.meta,
    )


def _finish(
    run: Run,
    source: ImageSource,
    network: Embedder,
    features: dict[str, Embeddings],
    rungs: list[Rung],
    chosen: Rung,
    untrained: dict[str, scoring.TestScores],
    seconds: float,
) -> None:
    """Write the model, its embeddings, statistics and scores, and the configuration that was chosen."""
    table = dict(untrained)
    for rung in rungs:
        if rung.head is not None:
            table[rung.name] = {
                name: _score(rung.head, data, source.tests[name].ks)
                for name, data in features.items()
                if name != "train"
            }
        elif rung.run is not None:
            table[rung.name] = rung.run.metrics["test"]
    if chosen.run is not None:
        config = replace(chosen.run.config, run=run.config.run)
        for file in (MODEL, STATISTICS, LOG, *(path.name for path in chosen.run.embeddings_files.values())):
            shutil.copyfile(chosen.run / file, run / file)
    else:
        config = _write_head(run, network, features, chosen)
    write_text(run / CONFIG, config.to_json())
    write_json(run / METRICS, _metrics(table, rungs, chosen, features["train"], source, seconds))


def _write_head(run: Run, network: Embedder, features: dict[str, Embeddings], chosen: Rung) -> Config:
    """Write the network with the chosen head, its embeddings and statistics; returns its configuration."""
    assert chosen.head is not None
    network.head, network.dim = chosen.head, head_dim(chosen.head, network.features)
    config = chosen_config(run.config, chosen)
    origin = run.origin(network, seed=config.seed)
    files = {"train": TRAINING, "test": "embeddings.safetensors"}
    for name, data in features.items():
        meta = origin | {key: data.meta[key] for key in ("preprocessing", "stamps")}
        file = files.get(name, f"embeddings-{name}.safetensors")
        replace(data, z=_apply(chosen.head, data.z), meta=meta).save(run / file)
    z = _apply(chosen.head, features["train"].z)
    classes, labels = features["train"].labels.unique(return_inverse=True)
    augment = IAA(len(classes), z.shape[1], **config.augment.keywords()).fit(z, labels)
    save_module(run, MODEL, network)
    save_module(run, STATISTICS, augment)
    return config


def _metrics(
    table: dict[str, scoring.TestScores],
    rungs: list[Rung],
    chosen: Rung,
    train: Embeddings,
    source: ImageSource,
    seconds: float,
) -> dict[str, Any]:
    rows = [{"name": rung.name, "held_out": rung.held_out, "left_out": rung.left_out} for rung in rungs]
    classes = len(train.labels.unique())
    return {
        "test": table[chosen.name],
        "table": table,
        "epoch": 0,
        "select": "held-out classes",
        "validation": None,
        "training_seconds": seconds,
        "train": {
            "samples": len(train),
            "classes": classes,
            "tested_as_well": len(classes_in_both(source)),
        },
        "ladder": {"rungs": rows, "chosen": chosen.name, "reason": reason(rungs, chosen)},
    }


def reason(rungs: list[Rung], chosen: Rung) -> str:
    """Why a rung was chosen, in one sentence."""
    folds = len(chosen.held_out)
    best, frozen = (f"{rung.mean('MAP@R', folds):.1f}" for rung in (chosen, rungs[0]))
    where = "on held-out training classes"
    if chosen is rungs[0]:
        return f"The frozen network was kept: nothing else was better {where} (MAP@R {best})."
    name = f"{chosen.name[0].upper()}{chosen.name[1:]}"
    return f"{name} was chosen: MAP@R {best} {where}, against {frozen} for the frozen network."


def _check_sizes(source: ImageSource, config: Config) -> None:
    sizes = source.dataset.part("train").class_sizes()
    if len(sizes) < LEAST_CLASSES:
        raise ValueError(
            f"{config.data} has {len(sizes)} training classes; comparing heads needs {LEAST_CLASSES}: "
            "add classes, or take the network as it is with --network.head none"
        )
    if sizes.max() < 2:
        raise ValueError(
            f"{config.data}: the training classes have one image each, which says nothing of how a class "
            "varies: add images, or take the network as it is with --network.head none"
        )
