"""Draw a folder of free images to try everything on: one sub-folder per class, no download, no licence.

python examples/free_images.py images --classes 40 --per-class 12
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.float64]

SHAPES = {  # petals, sharpness of the tips, roundness of the sides: the superformula of Gielis
    "disc": (0.0, 1.0, 1.0),
    "leaf": (2.0, 0.9, 1.6),
    "star": (5.0, 0.28, 1.7),
    "flower": (6.0, 1.2, 2.6),
    "tile": (4.0, 12.0, 15.0),
    "gear": (12.0, 1.6, 5.0),
}
COLORS = {"red": 0.0, "amber": 0.11, "green": 0.36, "teal": 0.5, "blue": 0.61, "violet": 0.78}
PATTERNS = ("striped", "ringed", "spotted", "checked", "rayed")


def class_names(number: int) -> list[str]:
    """Names such as ``amber striped leaf``; neighbours in the list share two of the three words."""
    every = [f"{c} {p} {s}" for s, c, p in itertools.product(SHAPES, COLORS, PATTERNS)]
    if not 1 <= number <= len(every):
        raise SystemExit(f"--classes must lie in 1 … {len(every)}, got {number}")
    step = len(every) / number
    return [every[int(place * step)] for place in range(number)]


def draw(name: str, rng: np.random.Generator, size: int = 128) -> Image.Image:
    """One image of a class: the class decides shape, hue and pattern, the draw pose, light and background."""
    color, pattern, shape = name.split(" ")
    hue = COLORS[color] + rng.normal(0, 0.012)
    y, x = np.mgrid[: 2 * size, : 2 * size] / size - 1.0  # twice the size, averaged at the end
    angle, scale = rng.uniform(0, 2 * np.pi), rng.uniform(0.5, 0.78)
    dx, dy = x - rng.uniform(-0.16, 0.16), y - rng.uniform(-0.16, 0.16)
    u = (np.cos(angle) * dx - np.sin(angle) * dy) / scale
    v = (np.sin(angle) * dx + np.cos(angle) * dy) / scale / rng.uniform(0.8, 1.0)
    radius, theta = np.hypot(u, v), np.arctan2(v, u)
    inside = radius < _outline(shape, theta)
    shade = _pattern(pattern, u, v, radius, theta, rng.uniform(0.85, 1.15))
    light = 1 + 0.35 * (np.cos(rng.uniform(0, 6.3)) * x + np.sin(rng.uniform(0, 6.3)) * y)
    front = _rgb(hue + 0.09 * shade, 0.75 - 0.3 * shade, (0.95 - 0.5 * shade) * np.clip(light, 0.5, 1.3))
    waves = 0.06 * np.sin(rng.uniform(2, 9) * (x * rng.normal() + y * rng.normal()) + rng.uniform(0, 6.3))
    back = _rgb(np.full_like(x, rng.uniform()), np.full_like(x, 0.12), rng.uniform(0.6, 0.9) + waves)
    shadow = np.where(np.roll(inside, (size // 16, size // 16), (0, 1)), 0.72, 1.0)[..., None]
    pixels = np.where(inside[..., None], front, back * shadow)
    pixels = pixels.reshape(size, 2, size, 2, 3).mean((1, 3)) + rng.normal(0, 0.02, (size, size, 3))
    return Image.fromarray((255 * pixels.clip(0, 1)).astype(np.uint8))


def _outline(shape: str, theta: Pixels) -> Pixels:
    petals, tip, side = SHAPES[shape]
    if not petals:
        return np.ones_like(theta)
    wave = np.abs(np.cos(petals * theta / 4)) ** side + np.abs(np.sin(petals * theta / 4)) ** side
    outline = wave ** (-1 / tip)
    scaled: Pixels = outline / outline.max()
    return scaled


def _pattern(pattern: str, u: Pixels, v: Pixels, radius: Pixels, theta: Pixels, pace: float) -> Pixels:
    """0 or 1 for every pixel."""
    waves = {
        "striped": np.sin(17 * pace * u),
        "ringed": np.sin(20 * pace * radius),
        "spotted": np.sin(13 * pace * u) * np.sin(13 * pace * v) - 0.35,
        "checked": np.sin(11 * pace * u) * np.sin(11 * pace * v),
        "rayed": np.sin(9 * theta),
    }
    shade: Pixels = (waves[pattern] > 0).astype(np.float64)
    return shade


def _rgb(hue: Pixels, saturation: Pixels, value: Pixels) -> Pixels:
    ramp = np.clip(np.abs((hue[..., None] * 6 + np.array([0, 4, 2])) % 6 - 3) - 1, 0, 1)
    color: Pixels = value[..., None] * (1 - saturation[..., None] * (1 - ramp))
    return color


def write(folder: str | Path, *, classes: int = 40, per_class: int = 12, size: int = 128) -> Path:
    """``folder/amber striped leaf/03.jpg`` and so on; the same images every time."""
    for number, name in enumerate(class_names(classes)):
        below = Path(folder) / name
        below.mkdir(parents=True, exist_ok=True)
        for place in range(per_class):
            rng = np.random.default_rng([number, place])
            draw(name, rng, size).save(below / f"{place:02d}.jpg", quality=90)
    return Path(folder)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--classes", type=int, default=40)
    options.add_argument("--per-class", type=int, default=12)
    options.add_argument("--size", type=int, default=128)
    given = options.parse_args()
    write(given.folder, classes=given.classes, per_class=given.per_class, size=given.size)
    print(f"{given.classes * given.per_class} images of {given.classes} classes in {given.folder}")
