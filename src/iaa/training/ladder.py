"""The best model for a set of images: rungs from frozen to fine-tuned, chosen on held-out training classes.

Features of the frozen network are computed once. Every rung is judged on training classes that it has not
seen, several times with other classes held out; then it is made from all training classes and scored on the
test classes, which choose nothing.
"""

import logging
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iaa.config import Config, Network, Optimizer, RunOptions
from iaa.data.dataset import draw_classes
from iaa.data_source import ImageSource, build_network, classes_in_both, open_data
from iaa.files import write_json, write_text
from iaa.method.augment import IAA
from iaa.method.whitening import Whitening
from iaa.models import Embedder
from iaa.models.heads import head_dim
from iaa.models.vector_head import VectorHead
from iaa.retrieval.embeddings import Embeddings
from iaa.runs import CONFIG, METRICS, MODEL, STATISTICS, Run
from iaa.training import scoring
from iaa.training.features import cached_features
from iaa.training.finalize import save_module

FOLDS = 3
"""How many times classes are held out."""
HELD_OUT = 0.25
"""Share of the training classes that is held out each time."""
LEAST_CLASSES = 4
"""Training classes that are needed to hold some of them out."""
MOST_DIMENSIONS = 512
RUNGS = "rungs"
"""Folder of the trained rungs in the directory of a run."""

Train = Callable[..., Run]
_log = logging.getLogger("iaa.train")


@dataclass(frozen=True)
class Scores:
    """Mean and spread over the folds, in percent."""

    recall: float
    map_at_r: float
    spread: float
    """Standard deviation of MAP@R over the folds."""


@dataclass
class Rung:
    """One way from features to embeddings."""

    name: str
    network: Network
    """The head as a configuration names it."""
    make: Callable[[Embeddings, str], nn.Module]
    """From embeddings with a train and a test part, and a name for what is written, to a head."""
    held_out: Scores | None = None
    head: nn.Module | None = None
    left_out: str = ""
    """Why it was not tried to the end."""


def climb(config: Config, train: Train, *, run: Run | None = None, quiet: bool = False) -> Run:
    """Compare the rungs, make the best one the model of a run, and return the run.

    ``train`` is ``iaa.train``. An interrupted run continues with the rungs that are not finished.
    """
    if config.devices > 1:
        raise ValueError("heads are compared on one device: use devices=1, or choose one with network.head")
    source = open_data(config)
    assert isinstance(source, ImageSource)  # vectors have a linear head unless another is named
    _check_classes(source, config)
    frozen = build_network(replace(config, network=replace(config.network, head="none")), source)
    assert isinstance(frozen, Embedder)
    run = Run.create(config, data=source) if run is None else Run(run, data=source)
    with run.lock():
        _log.info("%s\n%s", frozen.describe(), run.path)
        began = time.monotonic()
        features = cached_features(config, source, frozen, quiet=quiet)
        rungs = _rungs(config, run, frozen, train, quiet)
        for rung in rungs:
            _judge(rung, features["train"], config)
        chosen = _choose(rungs)
        for rung in rungs:
            if not rung.left_out:
                rung.head = rung.make(_with_tests(features), rung.name)
        _finish(run, source, frozen, features, rungs, chosen, time.monotonic() - began)
    return run


def _rungs(config: Config, run: Run, frozen: Embedder, train: Train, quiet: bool) -> list[Rung]:
    wanted = config.network.dim or MOST_DIMENSIONS
    dim = min(wanted, frozen.features)
    base = replace(config.network, freeze_backbone=True, dim=dim)

    def whiten(data: Embeddings, name: str) -> nn.Module:
        rows = data.where(split="train")
        whitening = Whitening(dim=dim if dim < frozen.features else None)
        return whitening.fit(data.z[rows].float(), data.labels[rows])

    def trained(data: Embeddings, name: str) -> nn.Module:
        network = _head_run(config, dim, run, train, data, name, quiet).network()
        assert isinstance(network, VectorHead)
        return network.head[-1]

    rungs = [
        Rung("frozen", replace(base, head="none", dim=None), lambda data, name: nn.Identity()),
        Rung("whitening", replace(base, head="whitening"), whiten),
    ]
    if config.effort != "quick":
        name = "head + IAA" if config.augment.copies else "head"
        rungs.append(Rung(name, replace(base, head="linear", head_start="whitening"), trained))
    return rungs


def _head_run(
    config: Config, dim: int, run: Run, train: Train, data: Embeddings, name: str, quiet: bool
) -> Run:
    """A head trained on features, in a directory of its own; one that is finished is used as it is."""
    folder = run / RUNGS / name.replace(" ", "")
    if Run(folder).finished:
        return Run(folder)
    default = Config()
    recipe = replace(
        config,
        data=f"embeddings:{folder}",
        root=None,
        model="auto",
        network=Network(dim=dim, head="linear", head_start="whitening"),
        epochs=HEAD_EPOCHS if config.epochs == default.epochs else config.epochs,
        optimizer=HEAD_OPTIMIZER if config.optimizer == default.optimizer else config.optimizer,
        split=replace(config.split, val_classes=0.0, per_class=None),
        run=RunOptions(out=str(folder.parent), name=folder.name, untrained=False, logger="none"),
    )
    return train(recipe, data=data, quiet=True)


HEAD_EPOCHS = 20
HEAD_OPTIMIZER = Optimizer(lr=1e-3, weight_decay=4e-4)


def _judge(rung: Rung, data: Embeddings, config: Config) -> None:
    """Score a rung on training classes that are held out in turns; what fails is left out with its reason."""
    values: list[dict[str, float]] = []
    try:
        for fold in range(FOLDS):
            labels = data.labels.numpy()
            held_out = draw_classes(np.unique(labels), HELD_OUT, seed=config.seed + fold)
            split = ["test" if label in set(held_out.tolist()) else "train" for label in labels.tolist()]
            part = replace(data, split=split)
            head = rung.make(part, f"{rung.name}-{fold}")
            values.append(_score(head, part.rows(part.where(split="test"))))
    except ValueError as error:
        if rung.name == "frozen":
            raise
        rung.left_out = str(error)
        _log.warning("%s is left out: %s", rung.name, error)
        return
    spread = statistics.stdev(row["MAP@R"] for row in values)
    recall, map_at_r = (statistics.mean(row[name] for row in values) for name in ("R@1", "MAP@R"))
    rung.held_out = Scores(recall, map_at_r, spread)
    _log.info("%s: MAP@R %.1f on held-out training classes", rung.name, map_at_r)


def _choose(rungs: list[Rung]) -> Rung:
    """The rung with the best mean MAP@R on held-out classes; of equals the simpler one."""
    judged = [rung for rung in rungs if rung.held_out is not None]
    return max(judged, key=lambda rung: rung.held_out.map_at_r if rung.held_out else 0.0)


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
    seconds: float,
) -> None:
    """Write the model, its embeddings, statistics and scores, and the configuration that was chosen."""
    made = [rung for rung in rungs if rung.head is not None]
    table: dict[str, scoring.TestScores] = {}
    for rung in made:
        assert rung.head is not None
        table[rung.name] = {
            name: _score(rung.head, data, source.tests[name].ks)
            for name, data in features.items()
            if name != "train"
        }
    assert chosen.head is not None
    network.head, network.dim = chosen.head, head_dim(chosen.head, network.features)
    config = replace(run.config, network=replace(chosen.network, dim=network.dim))
    config = config if chosen.name != "frozen" else replace(config, network=chosen.network)
    write_text(run / CONFIG, config.to_json())
    run = Run(run.path, data=source)
    meta = run.origin(network, seed=config.seed)
    for name, data in features.items():
        if name != "train":
            file = "embeddings.safetensors" if name == "test" else f"embeddings-{name}.safetensors"
            replace(data, z=_apply(chosen.head, data.z), meta=meta).save(run / file)
    train = features["train"]
    z = _apply(chosen.head, train.z)
    classes, labels = train.labels.unique(return_inverse=True)
    augment = IAA(len(classes), z.shape[1], **config.augment.keywords()).fit(z, labels)
    save_module(run, MODEL, network)
    save_module(run, STATISTICS, augment)
    write_json(run / METRICS, _metrics(table, rungs, chosen, train, source, seconds))


def _metrics(
    table: dict[str, scoring.TestScores],
    rungs: list[Rung],
    chosen: Rung,
    train: Embeddings,
    source: ImageSource,
    seconds: float,
) -> dict[str, Any]:
    rows = []
    for rung in rungs:
        scores = rung.held_out
        held_out = None if scores is None else {"R@1": scores.recall, "MAP@R": scores.map_at_r}
        spread = None if scores is None else scores.spread
        rows.append({"name": rung.name, "held_out": held_out, "spread": spread, "left_out": rung.left_out})
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
        "ladder": {"rungs": rows, "chosen": chosen.name, "folds": FOLDS, "reason": reason(rungs, chosen)},
    }


def reason(rungs: list[Rung], chosen: Rung) -> str:
    """Why a rung was chosen, in one sentence."""
    frozen, best = rungs[0].held_out, chosen.held_out
    assert frozen is not None
    assert best is not None
    if chosen is rungs[0]:
        return (
            f"The frozen network was kept: nothing was better on held-out training classes ({_number(best)})."
        )
    return (
        f"{chosen.name[0].upper()}{chosen.name[1:]} was chosen: {_number(best)} on held-out training "
        f"classes, against {frozen.map_at_r:.1f} for the frozen network."
    )


def _number(scores: Scores) -> str:
    return f"MAP@R {scores.map_at_r:.1f} ± {scores.spread:.1f}"


def _check_classes(source: ImageSource, config: Config) -> None:
    sizes = source.dataset.part("train").class_sizes()
    if len(sizes) < LEAST_CLASSES:
        raise ValueError(
            f"{config.data} has {len(sizes)} training classes; comparing heads needs {LEAST_CLASSES}: "
            "add classes, or take the network as it is with --network.head none"
        )
