"""From a name on the command line to a dataset."""

from pathlib import Path

from iaa.data import benchmarks, custom
from iaa.data.benchmarks import VEHICLEID_SIZES, emoji, vehicleid
from iaa.data.dataset import ClassSplit, Dataset
from iaa.errors import unknown

BENCHMARKS = ("cub", "cars", "sop", "inshop", "vehicleid")
SPECS = (*BENCHMARKS, "emoji", "folder:DIR", "table:FILE")


def load(
    spec: str,
    *,
    root: str | Path | None = None,
    per_class: int | None = None,
    seed: int = 0,
    test_share: float | None = None,
    size: str | None = None,
    protocol: str | None = None,
    known: ClassSplit | None = None,
) -> Dataset:
    """Read a dataset: a benchmark by name (with ``root``), ``emoji``, ``folder:DIR`` or ``table:FILE``.

    ``seed`` draws ``per_class`` training images, the test classes of own data that brings no split
    (``test_share``, 0.2) and the gallery of ``vehicleid``'s ``protocol="one-gallery"``; ``size`` is
    its small, medium (default) or large test set. With the classes ``known`` to a run, own data is split as
    it was there, and new classes are test classes.
    """
    kind, colon, path = spec.partition(":")
    own_data = kind in ("folder", "table") and bool(colon)
    if not own_data and spec not in (*BENCHMARKS, "emoji"):
        if Path(spec).expanduser().is_dir():
            raise ValueError(f"{spec} is not a dataset: did you mean folder:{spec}?")
        raise unknown("the dataset", spec, SPECS)
    _only_where(own_data, spec, "own data (folder:DIR, table:FILE)", test_share=test_share)
    _only_where(spec == "vehicleid", spec, "vehicleid", size=size, protocol=protocol)
    _only_where(kind != "folder", spec, "benchmarks and tables", root=root)
    share = 0.2 if test_share is None else test_share
    home = None if root is None else Path(root).expanduser()
    if kind == "folder":
        dataset = custom.folder(Path(path).expanduser(), seed=seed, test_share=share, known=known)
    elif kind == "table":
        dataset = custom.table(Path(path).expanduser(), root=home, seed=seed, test_share=share, known=known)
    elif spec == "emoji":
        dataset = emoji(home)
    elif home is None:
        raise ValueError(
            f"{spec} needs a root, the folder with its files (--root DIR): docs/datasets.md says where to "
            "get them"
        )
    elif spec == "vehicleid":
        dataset = vehicleid(home, size=size or "medium", protocol=protocol or "leave-one-out", seed=seed)
    else:
        readers = {"cub": benchmarks.cub, "cars": benchmarks.cars, "sop": benchmarks.sop}
        dataset = readers.get(spec, benchmarks.inshop)(home)
    return dataset if per_class is None else dataset.per_class(per_class, seed=seed)


def evaluations(
    spec: str,
    *,
    root: str | Path | None = None,
    seed: int = 0,
    test_share: float | None = None,
    size: str | None = None,
    protocol: str | None = None,
    known: ClassSplit | None = None,
) -> dict[str, Dataset]:
    """The test parts that belong in one table: small, medium and large for vehicleid, else just ``test``."""
    sizes = VEHICLEID_SIZES if spec == "vehicleid" and size is None else (size,)
    datasets = {
        each or "test": load(
            spec, root=root, seed=seed, test_share=test_share, size=each, protocol=protocol, known=known
        )
        for each in sizes
    }
    return {name: dataset.part("test") for name, dataset in datasets.items()}


def _only_where(fits: bool, spec: str, owner: str, **options: object) -> None:
    for name, value in options.items():
        if value is not None and not fits:
            raise ValueError(f"{name} belongs to {owner}, not to {spec}")
