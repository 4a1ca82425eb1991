"""People's own images: a folder per class, or a table."""

import csv
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from iaa.data.dataset import Dataset, draw_classes, make
from iaa.data.file_listing import folders, images_under
from iaa.errors import need

_PARTS = {
    "train": ("train", "both"),
    "val": ("val", "both"),
    "validation": ("val", "both"),
    "test": ("test", "both"),
    "query": ("test", "query"),
    "gallery": ("test", "gallery"),
}
_BOX = ("x_1", "y_1", "x_2", "y_2")


class UnusableTable(ValueError):
    """A table that is there, but does not say what it should; the message names file and row."""


def folder(root: Path, *, seed: int, test_share: float) -> Dataset:
    """One sub-folder per class, at will below ``train/ val/ test/`` or ``query/ gallery/``.

    Without such parts, a share of the classes drawn by ``seed`` becomes the test part.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"folder {root} does not exist")
    inner = folders(root)
    divided = bool(inner) and all(path.name.lower() in _PARTS for path in inner)
    paths: list[str] = []
    names: list[str] = []
    split: list[str] = []
    role: list[str] = []
    for part in inner if divided else [root]:
        to = _PARTS[part.name.lower()] if divided else ("train", "both")
        for home in folders(part):
            found = images_under(home)
            paths += found
            names += [home.name] * len(found)
            split += [to[0]] * len(found)
            role += [to[1]] * len(found)
    if not paths:
        raise ValueError(f"folder {root} has no images in sub-folders: expected one sub-folder per class")
    dataset = make(root.name, paths, names, split, role=role)
    return dataset if divided else _split_classes(dataset, test_share, seed)


def table(file: Path, *, root: Path | None, seed: int = 0, test_share: float | None = None) -> Dataset:
    """A csv or Parquet table with the columns path and label, and at will split, is_query, is_gallery.

    Paths are relative to ``root``, else to the table's own folder. The tables of open-metric-learning, whose
    ``validation`` is the test part and whose ``x_1 y_1 x_2 y_2`` is a box to cut out, work as they are.
    Without a column split, a share of the classes drawn by ``seed`` is the test part; None: everything is.
    """
    columns = _read(file)
    for column in ("path", "label"):
        if column not in columns:
            there = ", ".join(columns) or "none"
            raise UnusableTable(f"{file} has no column {column!r}: it has {there}")
        for row, value in enumerate(columns[column], start=1):
            if value is None or not str(value).strip():
                raise UnusableTable(f"{file}, row {row}: the {column} is empty")
    if not columns["path"]:
        raise UnusableTable(f"{file} has no rows: expected one per image below the names of the columns")
    base = file.parent if root is None else root
    paths = [str(base / str(path)) for path in columns["path"]]
    given = [str(value).strip().lower() for value in columns.get("split", ())]
    for row, value in enumerate(given, start=1):
        if value not in ("train", "val", "validation", "test"):
            raise UnusableTable(
                f"{file}, row {row}: split must be train, val, validation or test; got {value!r}"
            )
    split = [_PARTS[value][0] for value in given] or ["train"] * len(paths)
    if given and "test" not in split:
        split = ["test" if part == "val" else part for part in split]
    dataset = make(file.stem, paths, columns["label"], split, boxes=_boxes(file, columns))
    if not given:
        if test_share is None:
            return dataset.with_split(np.full(len(dataset), "test"))
        dataset = _split_classes(dataset, test_share, seed)
    roles = _roles(file, columns, dataset.split.tolist())
    return replace(dataset, role=np.array(roles, dtype="<U7"))


def _split_classes(dataset: Dataset, share: float, seed: int) -> Dataset:
    chosen = draw_classes(np.unique(dataset.labels), share, seed=seed)
    split = np.where(np.isin(dataset.labels, chosen), "test", "train")
    return dataset.with_split(split)


def _read(file: Path) -> dict[str, list[object]]:
    if not file.is_file():
        raise FileNotFoundError(f"table {file} does not exist")
    if file.suffix.lower() in (".parquet", ".pq"):
        parquet = need("pyarrow.parquet", extra="tables")
        try:
            read = parquet.read_table(file)
        except (ValueError, OSError) as error:
            raise UnusableTable(f"{file} is cut short or no Parquet file: {error}") from error
        return {name: read.column(name).to_pylist() for name in read.column_names}
    try:
        with open(file, newline="", encoding="utf-8-sig") as lines:
            head = lines.readline()
            lines.seek(0)
            reader = csv.reader(lines, delimiter=max(",;\t", key=head.count))
            names = [name.strip() for name in next(reader, [])]
            cells = [row for row in reader if row]
    except UnicodeDecodeError as error:
        raise UnusableTable(f"{file} must be text in UTF-8: save it as such ({error})") from error
    except csv.Error as error:
        raise UnusableTable(f"{file} is no csv table: {error}") from error
    if not names:
        raise UnusableTable(f"{file} is empty: expected the names of the columns in its first line")
    for number, row in enumerate(cells, start=2):
        if len(row) != len(names):
            raise UnusableTable(f"{file}, line {number}: expected {len(names)} columns, got {len(row)}")
    return {name: [row[i] for row in cells] for i, name in enumerate(names)}


def _roles(file: Path, columns: dict[str, list[object]], split: list[str]) -> list[str]:
    roles = ["both"] * len(split)
    if "is_query" not in columns and "is_gallery" not in columns:
        return roles
    asks = _flags(columns.get("is_query"), len(split))
    answers = _flags(columns.get("is_gallery"), len(split))
    for row, (part, query, gallery) in enumerate(zip(split, asks, answers, strict=True)):
        if part == "train":
            continue
        if not (query or gallery):
            raise UnusableTable(f"{file}, row {row + 1}: a test image must be query, gallery or both")
        roles[row] = "both" if query and gallery else "query" if query else "gallery"
    return roles


def _flags(values: Iterable[object] | None, length: int) -> list[bool]:
    if values is None:
        return [False] * length
    return [str(value).strip().lower() in ("true", "1", "1.0", "yes") for value in values]


def _boxes(file: Path, columns: dict[str, list[object]]) -> npt.NDArray[np.float64] | None:
    if not all(name in columns for name in _BOX):
        return None
    cells = [[_number(file, name, row, cell) for row, cell in enumerate(columns[name], 1)] for name in _BOX]
    boxes = np.array(cells, dtype=np.float64).T
    return None if np.isnan(boxes).all() else boxes


def _number(file: Path, column: str, row: int, value: object) -> float:
    text = str(value).strip()
    try:
        return math.nan if text in ("", "None", "nan", "NaN") else float(text)
    except ValueError as error:
        raise UnusableTable(f"{file}, row {row}: {column} must be a number, got {text!r}") from error
