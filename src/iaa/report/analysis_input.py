"""The embeddings to analyse: rows of a file, or the classes that a run was trained or tested on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from iaa.config import load_config

if TYPE_CHECKING:
    from iaa.retrieval.embeddings import Embeddings

Split = Literal["auto", "train", "val", "test", "all"]


@dataclass(frozen=True)
class AnalysisInput:
    """Embeddings to analyse, and the correction options of the run they come from."""

    name: str
    data: "Embeddings"
    split: str
    correction: dict[str, Any]

    @property
    def dataset(self) -> str:
        """The name of the dataset, if the file has it."""
        return str(self.data.meta.get("data", ""))

    @property
    def title(self) -> str:
        """What is analysed."""
        rows = "all rows" if self.split == "all" else f"{self.split} classes"
        samples, dim = self.data.z.shape
        classes = len(self.data.labels.unique())
        return f"{self.name}, {rows}: {samples:,} samples of {classes:,} classes, {dim} dimensions"


def read_input(path: Path, split: Split, *, otherwise: Literal["train", "test"] = "train") -> AnalysisInput:
    """A file's rows, or a run's classes; ``auto`` means ``otherwise`` if there is that split, else all.

    Embeddings of a run's training classes are computed by its network the first time, and cached.
    """
    from iaa.retrieval.embeddings import Embeddings

    wanted = otherwise if split == "auto" else split
    if path.is_dir() and (path / "config.json").is_file():
        return _run(path, wanted)
    data = Embeddings.load(_only(path) if path.is_dir() else path)
    if split == "auto" and wanted not in data.split:
        wanted = "all"
    return AnalysisInput(path.name, _rows(data, wanted, path), wanted, {})


def _run(path: Path, split: str) -> AnalysisInput:
    import torch.nn.functional as F

    from iaa.retrieval.embeddings import Embeddings
    from iaa.training.finished_run import correction_options, training_embeddings

    if split == "all":
        raise ValueError(
            f"run {path} stores training and test classes separately: give --split train or test"
        )
    options = load_config(path).augment
    name = path.resolve().name
    if split == "train":
        with progress(f"{name}: training classes") as tick:
            data = training_embeddings(path, tick=tick)
    else:
        data = _rows(Embeddings.load(_only(path)), split, path)
    if options.space == "unit":
        data = Embeddings(
            F.normalize(data.z, dim=1),
            data.labels,
            data.ids,
            data.class_names,
            data.split,
            data.role,
            data.meta,
        )
    return AnalysisInput(name, data, split, correction_options(options))


def _only(folder: Path) -> Path:
    """The only embeddings file of a folder."""
    files = sorted(folder.glob("embeddings*.safetensors"))
    if not files:
        raise FileNotFoundError(
            f"no embeddings*.safetensors in {folder}: `iaa embed` or `iaa train` writes one"
        )
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise ValueError(f"{folder} holds several embeddings files: name one of {names}")
    return files[0]


def _rows(data: "Embeddings", split: str, path: Path) -> "Embeddings":
    if split == "all":
        return data
    keep = data.where(split=split)
    if not keep.any():
        raise ValueError(
            f"{path} has no rows of split {split!r}: it has {', '.join(sorted(set(data.split)))}"
        )
    return data.rows(keep)


@contextmanager
def progress(description: str) -> Iterator[Callable[[float], None]]:
    """A progress bar with the time left on stderr, silent if that is not a terminal."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=1.0)
        yield lambda done: bar.update(task, completed=done)
