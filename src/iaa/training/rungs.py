"""The rungs of the ladder: ways from images to embeddings, each made from some training classes."""

import logging
import shutil
import statistics
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from iaa.config import BatchOptions, Config, Network, Optimizer, RunOptions
from iaa.data.dataset import ClassSplit
from iaa.method.whitening import Whitening
from iaa.models import Embedder
from iaa.models.heads import VectorHead
from iaa.retrieval.embeddings import Embeddings
from iaa.runs import Run

FOLDS = 3
"""How many times classes are held out."""
HELD_OUT = 0.25
"""Share of the training classes that is held out each time."""
MOST_DIMENSIONS = 512
RUNGS_FOLDER = "rungs"
"""Folder of the trained rungs in the directory of a run."""

Train = Callable[..., Run]
Make = Callable[[Embeddings, str], nn.Module]
_log = logging.getLogger("iaa.train")

LOSS, STRENGTH = "norm_softmax", 0.8
HEAD_EPOCHS = 10
HEAD_OPTIMIZER = Optimizer(name="adamw", lr=1e-4, head_factor=1.0, weight_decay=1e-4)
TUNE_EPOCHS = 2
TUNE_BATCH = BatchOptions(classes=16, per_class=4)
TUNE_OPTIMIZER = Optimizer(
    name="adamw", lr=1e-4, weight_decay=0.01, warmup_epochs=0.4, clip=5.0, average=0.97
)
"""What they bring on CUB-200-2011: benchmarks/fine_tuning.md."""


@dataclass
class Rung:
    """One way from images to embeddings."""

    name: str
    network: Network
    """The head as a configuration names it."""
    make: Make | None = None
    """From features with a train and a test part, and a name for what is written, to a head; None where the
    whole network is trained."""
    held_out: list[dict[str, float]] = field(default_factory=list)
    """R@1 and MAP@R on the held-out classes of each fold."""
    head: nn.Module | None = None
    run: Run | None = None
    """Where the whole network was trained."""
    left_out: str = ""
    """Why it was not compared."""

    def mean(self, name: str, folds: int = FOLDS) -> float:
        """The mean of a score over the first folds."""
        return statistics.mean(scores[name] for scores in self.held_out[:folds])


def head_rungs(config: Config, run: Run, frozen: Embedder, train: Train) -> list[Rung]:
    """The rungs on features of the frozen network: as they are, whitened, and with a trained head."""
    base, features = replace(config.network, freeze_backbone=True), frozen.features
    whitened_dim = min(config.network.dim or features, features)
    head_dim = trained_dim(config, frozen)

    def whiten(data: Embeddings, name: str) -> nn.Module:
        rows = data.where(split="train")
        whitening = Whitening(dim=whitened_dim if whitened_dim < features else None)
        return whitening.fit(data.z[rows].float(), data.labels[rows])

    def trained(data: Embeddings, name: str) -> nn.Module:
        network = _head_run(config, head_dim, run, train, data, name).network()
        assert isinstance(network, VectorHead)
        return network.head[-1]

    rungs = [
        Rung("frozen", replace(base, head="none", dim=None), lambda data, name: nn.Identity()),
        Rung("whitening", replace(base, head="whitening", dim=whitened_dim), whiten),
    ]
    if config.effort != "quick":
        network = replace(base, head="linear", head_start="whitening", dim=head_dim)
        rungs.append(Rung(_with_method("head", config), network, trained))
    return rungs


def chosen_config(config: Config, rung: Rung) -> Config:
    """The configuration of a run whose model is this rung: its head, and how that was trained if it was."""
    trained = rung.network.head == "linear"
    recipe = _unless_given(config, epochs=HEAD_EPOCHS, optimizer=HEAD_OPTIMIZER) if trained else config
    return replace(recipe, network=rung.network)


def trained_dim(config: Config, frozen: Embedder) -> int:
    """Dimensions of a head that is trained."""
    return min(config.network.dim or MOST_DIMENSIONS, frozen.features)


def _head_run(config: Config, dim: int, run: Run, train: Train, data: Embeddings, name: str) -> Run:
    """A head trained on features, in a directory of its own; one that is finished is used as it is."""
    folder = run / RUNGS_FOLDER / _file_name(name)
    if Run(folder).finished:
        return Run(folder)
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed: it takes seconds again
    with _without_messages():
        return train(head_recipe(config, dim, folder), data=data, quiet=True)


def head_recipe(config: Config, dim: int, folder: Path) -> Config:
    """How a head is trained on features, in the directory ``folder``."""
    return replace(
        _unless_given(config, epochs=HEAD_EPOCHS, optimizer=HEAD_OPTIMIZER),
        data=f"embeddings:{folder}",
        root=None,
        model="auto",
        network=Network(dim=dim, head="linear", head_start="whitening"),
        split=replace(config.split, val_classes=0.0, per_class=None),
        run=RunOptions(out=str(folder.parent), name=folder.name, untrained=False, logger="none"),
    )


def fine_tuning(config: Config) -> Config:
    """The recipe for the whole network: a head that starts as whitening, random crops, frozen batch norm."""
    network = replace(config.network, head="linear", head_start="whitening", freeze_bn=True)
    return replace(
        _unless_given(config, epochs=TUNE_EPOCHS, optimizer=TUNE_OPTIMIZER, batch=TUNE_BATCH),
        network=replace(network, dim=network.dim or MOST_DIMENSIONS),
        images=replace(config.images, crop="zoom"),
    )


def judged_recipe(recipe: Config) -> Config:
    """The same training with classes held out, by which it is judged."""
    return replace(recipe, split=replace(recipe.split, val_classes=HELD_OUT))


def fine_tuned_rung(
    config: Config,
    run: Run,
    train: Train,
    rungs: list[Rung],
    *,
    classes: ClassSplit,
    held_out: Collection[str],
    quiet: bool,
) -> Rung:
    """The whole network, from the whitened head on: judged on the first fold, then trained on all classes.

    It takes the place of the best head only if it is better on that fold, whose classes are ``held_out``;
    otherwise the second training would be for nothing.
    """
    recipe = fine_tuning(config)
    rung = Rung(_with_method("fine-tuned", config), recipe.network)
    rest = tuple(name for name in classes.train if name not in held_out)
    fold = replace(classes, train=rest, val=tuple(held_out))
    judged = _tuned_run("fine-tuned-judged", judged_recipe(recipe), run, train, fold, quiet)
    rung.held_out = [next(row["val"] for row in reversed(judged.log) if "val" in row)]
    best = max(other.mean("MAP@R", 1) for other in rungs if other.held_out)
    if rung.mean("MAP@R", 1) <= best:
        rung.left_out = f"MAP@R {rung.mean('MAP@R', 1):.1f} on held-out classes, {best:.1f} without it"
        return rung
    rung.run = _tuned_run("fine-tuned", recipe, run, train, classes, quiet)
    return rung


def _tuned_run(name: str, recipe: Config, run: Run, train: Train, classes: ClassSplit, quiet: bool) -> Run:
    options = RunOptions(out=str(run / RUNGS_FOLDER), name=name, untrained=False, logger=recipe.run.logger)
    folder = run / RUNGS_FOLDER / name
    if Run(folder).finished:
        return Run(folder)
    if folder.is_dir():
        return train(resume=folder, quiet=quiet)
    return train(replace(recipe, run=options), classes=classes, quiet=quiet)


def _unless_given(config: Config, **recipe: Any) -> Config:
    """The configuration with the ladder's loss, strength and recipe where the user kept the defaults."""
    default = Config()
    own_loss = config.loss_options or config.miner or config.memory  # they belong to the loss that is named
    wanted = recipe if own_loss else {"loss": LOSS, **recipe}
    fields = {
        name: value for name, value in wanted.items() if getattr(config, name) == getattr(default, name)
    }
    if config.augment.strength == default.augment.strength:
        fields["augment"] = replace(config.augment, strength=STRENGTH)
    return replace(config, **fields)


def _with_method(name: str, config: Config) -> str:
    return f"{name} + IAA" if config.augment.copies else name


def _file_name(name: str) -> str:
    return name.replace(" + ", "-").lower()


@contextmanager
def _without_messages() -> Iterator[None]:
    level = _log.level
    _log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        _log.setLevel(level)
