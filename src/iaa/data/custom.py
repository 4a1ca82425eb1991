"""People's own images: a folder per class, or a table."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from iaa.data.dataset import ClassSplit, Dataset, Strings, draw_classes, make
from iaa.data.file_listing import folders, images_in, images_under, report_ignored
from iaa.errors import missing_folder
from iaa.table_files import read_csv, read_parquet

_SPLIT_AND_ROLE = {
    "train": ("train", "both"),
    "val": ("val", "both"),
    "validation": ("val", "both"),
    "test": ("test", "both"),
    "query": ("test", "query"),
    "gallery": ("test", "gallery"),
}
_BOX = ("x_1", "y_1", "x_2", "y_2")
_EMPTY = ("", "None", "nan", "NaN")

Columns = dict[str, list[object]]


class UnusableTable(ValueError):
    """A table that exists but does not hold what is expected; the message names file and row."""


def folder(root: Path, *, seed: int, test_share: float, known: ClassSplit | None = None) -> Dataset:
    """One sub-folder per class, optionally below ``train/ val/ test/`` or ``query/ gallery/``.

    Without such parts, a share of the classes drawn by ``seed`` becomes the test part; classes ``known`` to a
    run stay in the part they were in.
    """
    if not root.is_dir():
        raise missing_folder(root)
    inner = folders(root)
    divided = bool(inner) and all(path.name.lower() in _SPLIT_AND_ROLE for path in inner)
    rows: list[tuple[str, str, str, str]] = []
    for part in inner if divided else [root]:
        split, role = _SPLIT_AND_ROLE[part.name.lower()] if divided else ("train", "both")
        for home in folders(part):
            rows += [(path, home.name, split, role) for path in images_under(home)]
    loose = [] if divided else images_in(root)
    report_ignored(root, loose if rows else ())
    if not rows:
        only = f" ({len(loose):,} outside them)" if loose else ""
        raise ValueError(
            f"folder {root} has no images in sub-folders{only}: expected one sub-folder per class"
        )
    paths, names, splits, roles = zip(*rows, strict=True)
    if not divided and len(set(names)) == 1 and known is None:
        _refuse_one_level_too_high(root / names[0])
    dataset = make(root.name, paths, names, splits, role=roles)
    if known is not None and known.knows(dataset):
        return known.apply(dataset)
    return dataset if divided else _split_classes(dataset, test_share, seed)


def _refuse_one_level_too_high(only: Path) -> None:
    inner = [path for path in folders(only) if images_under(path)]
    if len(inner) > 1:
        raise ValueError(
            f"folder {only.parent} holds a single class, {only.name!r}, which has {len(inner)} sub-folders: "
            f"did you mean folder:{only}?"
        )


def table(
    file: Path,
    *,
    root: Path | None,
    seed: int = 0,
    test_share: float | None = None,
    known: ClassSplit | None = None,
) -> Dataset:
    """A csv or Parquet table of path and label, and optionally split, is_query, is_gallery and sequence.

    Paths are relative to ``root``, else to the table's own folder. The tables of open-metric-learning, whose
    ``validation`` is the test part and whose ``x_1 y_1 x_2 y_2`` is a box to cut out, work as they are.
    Without a column split, ``test_share`` of the classes, drawn by ``seed``, are the test part (None: all).
    Classes ``known`` to a run stay in the part they were in.
    """
    columns = _read(file)
    _check_required(file, columns)
    base = file.parent if root is None else root
    paths = [str(base / str(path)) for path in columns["path"]]
    split = _splits(file, columns)
    dataset = make(
        file.stem,
        paths,
        columns["label"],
        split or ["train"] * len(paths),
        boxes=_boxes(file, columns),
        sequence=_sequences(columns),
    )
    if known is not None and known.knows(dataset):
        dataset = known.apply(dataset)
    elif not split:
        if test_share is None:
            return dataset.with_split(np.full(len(dataset), "test"))
        dataset = _split_classes(dataset, test_share, seed)
    roles = _roles(file, columns, dataset.split.tolist())
    return replace(dataset, role=np.array(roles, dtype="<U7"))


def _split_classes(dataset: Dataset, share: float, seed: int) -> Dataset:
    chosen = draw_classes(np.unique(dataset.labels), share, seed=seed)
    split = np.where(np.isin(dataset.labels, chosen), "test", "train")
    return dataset.with_split(split)


def _read(file: Path) -> Columns:
    if not file.is_file():
        raise FileNotFoundError(f"table {file} does not exist")
    try:
        if file.suffix.lower() in (".parquet", ".pq"):
            return read_parquet(file)[1]
        return {name: list(column) for name, column in read_csv(file).items()}
    except ValueError as error:
        raise UnusableTable(str(error)) from error


def _check_required(file: Path, columns: Columns) -> None:
    for name in ("path", "label"):
        if name not in columns:
            raise UnusableTable(f"{file} has no column {name!r}: it has {', '.join(columns) or 'none'}")
        for row, value in enumerate(columns[name], start=1):
            if value is None or not str(value).strip():
                raise UnusableTable(f"{file}, row {row}: the {name} is empty")
    if not columns["path"]:
        raise UnusableTable(f"{file} has no rows: expected one per image below the names of the columns")


def _splits(file: Path, columns: Columns) -> list[str]:
    """The split of every row, empty where the table has none; ``val`` is the test part if there is none."""
    given = [str(value).strip().lower() for value in columns.get("split", ())]
    for row, value in enumerate(given, start=1):
        if value not in ("train", "val", "validation", "test"):
            raise UnusableTable(
                f"{file}, row {row}: split must be train, val, validation or test; got {value!r}"
            )
    split = [_SPLIT_AND_ROLE[value][0] for value in given]
    return split if "test" in split else ["test" if part == "val" else part for part in split]


def _roles(file: Path, columns: Columns, split: list[str]) -> list[str]:
    if "is_query" not in columns and "is_gallery" not in columns:
        return ["both"] * len(split)
    no: list[object] = [False] * len(split)
    flags = zip(columns.get("is_query", no), columns.get("is_gallery", no), strict=True)
    roles = {(True, True): "both", (True, False): "query", (False, True): "gallery"}
    chosen = []
    for row, (part, (query, gallery)) in enumerate(zip(split, flags, strict=True), start=1):
        chosen_by = (_flag(file, row, "is_query", query), _flag(file, row, "is_gallery", gallery))
        role = "both" if part == "train" else roles.get(chosen_by)
        if role is None:
            raise UnusableTable(f"{file}, row {row}: a test image must be query, gallery or both")
        chosen.append(role)
    return chosen


def _flag(file: Path, row: int, column: str, value: object) -> bool:
    text = str(value).strip().lower()
    if text in ("true", "1", "1.0", "yes"):
        return True
    if text in ("false", "0", "0.0", "no", *map(str.lower, _EMPTY)):
        return False
    raise UnusableTable(f"{file}, row {row}: {column} must be true or false, got {value!r}")


def _sequences(columns: Columns) -> Strings | None:
    """The sequence of every row, ``""`` where a row belongs to none."""
    texts = ["" if value is None else str(value).strip() for value in columns.get("sequence", ())]
    names = ["" if text in _EMPTY else text for text in texts]
    return np.array(names, dtype=object) if any(names) else None


def _boxes(file: Path, columns: Columns) -> npt.NDArray[np.float64] | None:
    missing = [name for name in _BOX if name not in columns]
    if len(missing) == len(_BOX):
        return None
    if missing:
        raise UnusableTable(f"{file} has an incomplete box: it has no {' and no '.join(missing)}")
    cells = [[_number(file, name, row, cell) for row, cell in enumerate(columns[name], 1)] for name in _BOX]
    boxes = np.array(cells, dtype=np.float64).T
    for row, box in enumerate(boxes.tolist(), start=1):
        _check_box(file, row, box)
    return None if np.isnan(boxes).all() else boxes


def _check_box(file: Path, row: int, box: Sequence[float]) -> None:
    empty = [name for name, side in zip(_BOX, box, strict=True) if math.isnan(side)]
    if len(empty) == len(_BOX):
        return
    if empty:
        raise UnusableTable(f"{file}, row {row}: incomplete box: {' and '.join(empty)} empty")
    left, top, right, bottom = box
    if not (left < right and top < bottom and all(map(math.isfinite, box))):
        raise UnusableTable(
            f"{file}, row {row}: a box needs x_1 < x_2 and y_1 < y_2, "
            f"got {left:g}, {top:g}, {right:g}, {bottom:g}"
        )


def _number(file: Path, column: str, row: int, value: object) -> float:
    text = str(value).strip()
    try:
        return math.nan if text in _EMPTY else float(text)
    except ValueError as error:
        raise UnusableTable(f"{file}, row {row}: {column} must be a number, got {text!r}") from error
