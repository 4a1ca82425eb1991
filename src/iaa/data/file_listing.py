"""Finding and reading the lists that come with a dataset, with errors that name file and line."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

IMAGES = frozenset(
    (
        ".jpg",
        ".jpeg",
        ".jpe",
        ".png",
        ".webp",
        ".bmp",
        ".gif",
        ".tif",
        ".tiff",
        ".ppm",
        ".pgm",
        ".jp2",
        ".avif",
    )
)


def locate(root: Path, file: str, *, inside: Sequence[str] = ()) -> Path:
    """The folder that holds ``file``: the root itself or one of the folders the archive makes in it."""
    if not root.is_dir():
        what = "is a file: extract it first" if root.is_file() else "does not exist"
        raise FileNotFoundError(f"root {root} {what}")
    for home in (root, *(root / folder for folder in inside)):
        if (home / file).is_file():
            return home
    places = " or ".join(str(Path(folder) / file) for folder in ("", *inside))
    raise FileNotFoundError(f"{root} does not hold {places}: docs/datasets.md shows the expected layout")


def rows(path: Path, columns: Sequence[str], *, skip: int = 0) -> list[tuple[Any, ...]]:
    """The words of every line, checked against the expected columns; the last column may hold spaces."""
    table = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if number <= skip or not line.strip():
                continue
            words = tuple(line.split(maxsplit=len(columns) - 1))
            if len(words) != len(columns):
                expected = ", ".join(columns)
                raise ValueError(f"{path}, line {number}: expected {expected}; got {line.strip()!r}")
            table.append((*words[:-1], words[-1].strip()))
    return table


def folders(root: Path) -> list[Path]:
    """The visible sub-folders, sorted by name."""
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def images_under(folder: Path) -> list[str]:
    """Every image file below a folder, at any depth, in a fixed order; hidden files are left out.

    The folder may be a link; links to folders inside it are not followed.
    """
    found: list[str] = []
    for place, inner, files in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        found += [os.path.join(place, name) for name in sorted(files) if _is_image(name)]
    return found


def images_in(folder: Path) -> list[str]:
    """The image files that lie in a folder itself."""
    return [str(path) for path in sorted(folder.iterdir()) if path.is_file() and _is_image(path.name)]


def _is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGES
