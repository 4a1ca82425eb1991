"""``Run``: the directory of a training run as an object, its files read and written in one place."""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from iaa.config import CONFIG_FILE, Config, load_config
from iaa.data.dataset import SPLITS, ClassSplit
from iaa.data_source import Source, check_classes, classes_of, open_data
from iaa.embed import PRECISIONS, embed_batches, resolve_device
from iaa.files import Lock, read_json, read_tensors, write_json, write_text
from iaa.json_dataclass import build
from iaa.method.gaussians import ClassStats
from iaa.models import Embedder
from iaa.models.heads import VectorHead
from iaa.provenance import weights_hash, with_columns
from iaa.retrieval.embeddings import Embeddings
from iaa.run_records import environment, new_folder, read_log, read_metrics, trained_network

if TYPE_CHECKING:
    from iaa.inference import Model

CONFIG = CONFIG_FILE
LOG = "log.jsonl"
METRICS = "metrics.json"
ENVIRONMENT = "surroundings.json"
CLASSES = "classes.json"
MODEL = "model.safetensors"
BEST = "best.safetensors"
KEPT_WEIGHTS = "weights-{:03}.safetensors"
"""Weights after this many epochs (``run.keep_every``)."""
STATISTICS = "statistics.safetensors"
CHECKPOINT = "checkpoint.safetensors"
TRAINING = "training.safetensors"
"""Embeddings of the training classes; not called embeddings*, which `iaa evaluate` scores."""
REPORT = "report.html"
GALLERIES = "galleries"
LOCK = "train.lock"

_SIZES = ["small", "medium", "large"]
"""Order of vehicleid's test sets."""


class Run:
    """A run directory: configuration, log, scores, embeddings and network of one training.

    Nothing is read before it is asked for, so an unfinished run can be opened too. ``run / "file"`` is a path
    in the directory, and a run can be given wherever a path is expected.
    """

    def __init__(self, path: "str | os.PathLike[str] | Run", *, data: Source | None = None) -> None:
        """Open a run; ``data`` is what ``open_data`` returned for it, if it was opened already."""
        self.path = Path(path).expanduser()
        if data is None and isinstance(path, Run):
            data = vars(path).get("data")
        if data is not None:
            self.data = data

    @classmethod
    def create(cls, config: Config, *, data: Source | None = None) -> "Run":
        """Make a new directory below ``config.run.out`` with configuration, environment and classes.

        Classes are recorded if ``data`` is given.
        """
        run = cls(new_folder(config), data=data)
        write_text(run / CONFIG, config.to_json())
        write_json(run / ENVIRONMENT, environment(seed=config.seed))
        if data is not None:
            write_json(run / CLASSES, asdict(classes_of(data)))
        return run

    @classmethod
    def around(cls, file: Path) -> "Run | None":
        """The run with a model in whose directory, or in whose folder of galleries, a file lies."""
        folders = (file.parent, file.parent.parent)
        return next((cls(at) for at in folders if (at / CONFIG).is_file() and (at / MODEL).is_file()), None)

    def __fspath__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.path.resolve() == other.path.resolve()

    def __hash__(self) -> int:
        return hash(self.path.resolve())

    def __repr__(self) -> str:
        return f"<Run {self}>"

    def __str__(self) -> str:
        if not self.finished:
            return f"{self.path}: {'not finished' if (self / CONFIG).is_file() else 'there is no run here'}"
        metrics, tests = self.metrics, []
        for test, scores in metrics["test"].items():
            shown = ", ".join(f"{name} {scores[name]:.1f}" for name in ("R@1", "MAP@R") if name in scores)
            tests.append(shown if test == "test" else f"{test} {shown}")
        chosen = metrics["ladder"]["chosen"] if "ladder" in metrics else ""
        how = chosen or f"epoch {metrics['epoch'] + 1} of {self.config.epochs}"
        return f"{self.path}: {'; '.join(tests)} ({how})"

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.path.resolve().name

    @property
    def finished(self) -> bool:
        """Whether training and scoring are done; ``metrics.json`` is the last file written."""
        return (self / METRICS).is_file()

    @functools.cached_property
    def config(self) -> Config:
        """The configuration it is trained with."""
        if not self.path.is_dir():
            raise FileNotFoundError(f"there is no run at {self.path}")
        return load_config(self.path)

    @functools.cached_property
    def metrics(self) -> dict[str, Any]:
        """Scores in percent: ``metrics["test"]["test"]["R@1"]``; the other tables are next to it."""
        return read_metrics(self.require(METRICS))

    @functools.cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, commit, machine, threads and seed."""
        return read_json(self.require(ENVIRONMENT), required=("versions", "commit", "machine"))

    @property
    def log(self) -> list[dict[str, Any]]:
        """One row for every step and one for every epoch, as far as they are written."""
        return list(read_log(self.require(LOG)))

    @functools.cached_property
    def data(self) -> Source:
        """What it is trained and tested on, listed again; new classes are test classes."""
        source = open_data(self.config, self.classes)
        if self.classes is not None:
            check_classes(source, self.classes, self.config, training=False)
        return source

    @functools.cached_property
    def classes(self) -> ClassSplit | None:
        """The classes it trains, validates and tests on; None in a run without ``classes.json``."""
        file = self / CLASSES
        if not file.is_file():
            return None
        split: ClassSplit = build(ClassSplit, read_json(file, required=SPLITS), str(file))
        return split

    @property
    def embeddings_files(self) -> dict[str, Path]:
        """Files of test embeddings: ``{"test": path}``, or several by the name of the test set."""
        files = self.path.glob("embeddings*.safetensors")
        names = {file.stem.removeprefix("embeddings").lstrip("-") or "test": file for file in files}
        order = sorted(names, key=lambda name: (_SIZES.index(name) if name in _SIZES else -1, name))
        return {name: names[name] for name in order}

    def embeddings(
        self, split: str = "test", *, device: str = "auto", tick: Callable[[float], None] = lambda done: None
    ) -> Embeddings:
        """Embeddings of the ``test`` classes (or of one of several test sets), or of the ``train`` classes.

        Those of the training classes are computed the first time, as test-time images, and kept in the run.
        """
        if split == "train":
            return self._training_embeddings(device, tick)
        files = self.embeddings_files
        if split not in files:
            available = f"it has {', '.join(files)}" if files else self._unfinished()
            raise FileNotFoundError(f"run {self.path} has no embeddings of {split!r}: {available}")
        return Embeddings.load(files[split])

    def network(self) -> Embedder | VectorHead:
        """The trained network in evaluation mode; the weights that training started from are not needed."""
        return trained_network(self.config, self.require(MODEL))

    @property
    def statistics(self) -> ClassStats:
        """Class statistics as the augmentation last estimated them."""
        tensors, _ = read_tensors(self.require(STATISTICS))
        return ClassStats(tensors["count"], tensors["mean"], tensors["own_variance"])

    @functools.cached_property
    def model(self) -> "Model":
        """The trained model, as ``iaa.load`` opens it: ``run.model.embed(images)``."""
        from iaa.inference import load

        return load(self.path)

    def report(self, out: str | Path | None = None, **options: Any) -> Path:
        """Write ``report.html`` into the run, or to ``out``; the options are those of ``iaa.report``."""
        from iaa.report import report

        return report(self, out=out, **options)

    def lock(self) -> Lock:
        """Hold the run while it is trained; a second process that tries gets a ``BlockingIOError``."""
        try:
            return Lock(self / LOCK)
        except BlockingIOError as error:
            raise BlockingIOError(f"run {self.path} is being trained by another process") from error

    def require(self, name: str) -> Path:
        """The path of a file that must be there."""
        if not self.path.is_dir():
            raise FileNotFoundError(f"there is no run at {self.path}")
        if not (self / name).is_file():
            raise FileNotFoundError(f"run {self.path} has no {name}: {self._unfinished()}")
        return self / name

    def origin(self, network: nn.Module, **more: Any) -> dict[str, Any]:
        """The ``meta`` of its embeddings files: data, network and what ids are relative to."""
        meta = {"data": self.config.data, "model": self.config.network_name, "run": self.name, **more}
        meta["weights_sha256"] = weights_hash(network)
        return meta if self.data.root is None else {**meta, "root": self.data.root}

    def _unfinished(self) -> str:
        if not (self / CONFIG).is_file():
            return "it is not a run directory"
        return f"if training was interrupted, continue it with `iaa train --resume {self.path}`"

    def _training_embeddings(self, device: str, tick: Callable[[float], None]) -> Embeddings:
        if (self / TRAINING).is_file():
            return Embeddings.load(self / TRAINING)
        network, chosen, part = self.network(), resolve_device(device), self.data.dataset.part("train")
        done = 0

        def count(samples: int) -> None:
            nonlocal done
            done += samples
            tick(done / len(part))

        z, _, rows = embed_batches(
            network.to(chosen),
            self.data.in_order(part, getattr(network, "preprocessing", None)),
            device=chosen,
            precision=PRECISIONS[self.config.precision],
            on_batch=count,
        )
        ids, meta = self.data.ids(part, rows), self.origin(network, part="train")
        embeddings = with_columns(part.take(rows.numpy()), z, ids, meta)
        embeddings.save(self / TRAINING)
        return embeddings

    @classmethod
    def list(cls, folder: str | Path = "runs") -> "Sequence[Run]":
        """All runs directly below a folder, the oldest first."""
        configs = Path(folder).expanduser().glob(f"*/{CONFIG}")
        return [cls(file.parent) for file in sorted(configs, key=lambda file: (file.stat().st_mtime, file))]
