"""Finding and reading the lists that come with a dataset, with errors that name file and line."""

import functools
import importlib.util
import logging
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_ENDINGS = "jpg", "jpeg", "jpe", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm", "jp2", "avif"
_log = logging.getLogger("iaa")


@functools.cache
def image_suffixes() -> frozenset[str]:
    """Endings of image files that can be read here; ``.heic`` where pillow-heif is installed."""
    more = ("heic", "heif") if importlib.util.find_spec("pillow_heif") is not None else ()
    return frozenset(f".{ending}" for ending in (*_ENDINGS, *more))


def locate(root: Path, file: str, *, inside: Sequence[str] = ()) -> Path:
    """The folder that holds ``file``: the root itself or one of the folders the archive makes in it."""
    if not root.is_dir():
        what = "is a file: extract it first" if root.is_file() else "does not exist"
        raise FileNotFoundError(f"root {root} {what}")
    for home in (root, *(root / folder for folder in inside)):
        if (home / file).is_file():
            return home
    expected = " or ".join(str(Path(folder) / file) for folder in ("", *inside))
    raise FileNotFoundError(f"{root} does not hold {expected}: docs/datasets.md shows the expected layout")


def rows(path: Path, columns: Sequence[str], *, skip: int = 0) -> list[tuple[Any, ...]]:
    """The fields of every line, checked against the expected columns; the last column may hold spaces."""
    table = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if number <= skip or not line.strip():
                continue
            fields = tuple(line.split(maxsplit=len(columns) - 1))
            if len(fields) != len(columns):
                expected = ", ".join(columns)
                raise ValueError(f"{path}, line {number}: expected {expected}; got {line.strip()!r}")
            table.append((*fields[:-1], fields[-1].strip()))
    return table


def folders(root: Path) -> list[Path]:
    """The visible sub-folders, sorted by name."""
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def images_under(folder: Path) -> list[str]:
    """Every image file below a folder, at any depth, in a fixed order; hidden files are left out.

    The folder may be a link; links to folders inside it are not followed.
    """
    paths: list[str] = []
    for parent, inner, files in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        paths += [os.path.join(parent, name) for name in sorted(files) if _is_image(name)]
    return paths


def report_ignored(root: Path, loose: Sequence[str] = ()) -> None:
    """Warn about images that belong to no class, and about visible files that are not images, by endings."""
    if loose:
        _warn_once(f"{root}: images in no class folder are ignored ({len(loose):,}, such as {loose[0]})")
    endings: Counter[str] = Counter()
    for _, inner, files in os.walk(root):
        inner[:] = [name for name in inner if not name.startswith(".")]
        ignored = (name for name in files if not name.startswith(".") and not _is_image(name))
        endings.update(os.path.splitext(name)[1].lower() or "no ending" for name in ignored)
    if endings:
        _warn_once(_ignored_text(root, endings))


def _ignored_text(root: Path, endings: Counter[str]) -> str:
    by_number = sorted(endings.items(), key=lambda item: (-item[1], item[0]))[:5]
    several = ", ".join(f"{number:,} {ending}" for ending, number in by_number)
    more = ", …" if len(endings) > 5 else ""
    hint = "; pip install pillow-heif to read .heic" if {".heic", ".heif"} & endings.keys() else ""
    total = endings.total()
    verb = "file is not an image and is" if total == 1 else "files are not images and are"
    return f"{root}: {total:,} {verb} ignored ({several}{more}){hint}"


@functools.cache
def _warn_once(message: str) -> None:
    """A command may list the same folder several times."""
    _log.warning(message)


def images_in(folder: Path) -> list[str]:
    """The image files that lie in a folder itself."""
    return [str(path) for path in sorted(folder.iterdir()) if path.is_file() and _is_image(path.name)]


def _is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in image_suffixes()
