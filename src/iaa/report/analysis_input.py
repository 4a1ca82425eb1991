"""The embeddings to analyse: rows of a file, or the classes that a run was trained or tested on."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from iaa.progress import progress

if TYPE_CHECKING:
    from iaa.retrieval.embeddings import Embeddings
    from iaa.runs import Run

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


def read_input(
    source: str | os.PathLike[str], split: Split, *, otherwise: Literal["train", "test"] = "train"
) -> AnalysisInput:
    """A file's rows, or a run's classes; ``auto`` means ``otherwise`` if there is that split, else all.

    Embeddings of a run's training classes are computed by its network the first time, and cached.
    """
    from iaa.retrieval.embeddings import Embeddings
    from iaa.runs import CONFIG, Run

    wanted = otherwise if split == "auto" else split
    run = Run(source)
    path = run.path
    if (run / CONFIG).is_file():
        return _of_run(run, wanted)
    data = Embeddings.load(_only(path) if path.is_dir() else path)
    if split == "auto" and wanted not in data.split:
        wanted = "all"
    return AnalysisInput(path.name, _rows(data, wanted, path), wanted, {})


def _of_run(run: "Run", split: str) -> AnalysisInput:
    import torch.nn.functional as F

    from iaa.retrieval.embeddings import Embeddings

    if split == "all":
        raise ValueError(
            f"run {run.path} stores training and test classes separately: give --split train or test"
        )
    options = run.config.augment
    if split == "train":
        with progress(f"{run.name}: training classes") as tick:
            data = run.embeddings("train", tick=tick)
    else:
        data = _rows(Embeddings.load(_only(run.path)), split, run.path)
    if options.space == "unit":
        data = replace(data, z=F.normalize(data.z, dim=1))
    return AnalysisInput(run.name, data, split, options.correction_keywords())


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
