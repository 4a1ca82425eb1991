"""Date and size of every image as they were when it was read: any difference is a change."""

import base64
import binascii
import os
from collections.abc import Iterable

import numpy as np

from iaa.gallery.gallery_items import image

Stamp = tuple[int, int]
"""Nanoseconds of the last writing, and bytes."""
NOWHERE: Stamp = (-1, -1)
"""There is no such file: vectors need no image, and an image may be gone."""


def stamps(names: Iterable[str]) -> dict[str, Stamp]:
    """What the disk says now."""
    return {name: _stamp(image(name).path) for name in names}


def pack(found: Iterable[Stamp]) -> str:
    """As one word for a header, 22 letters an image."""
    return base64.b64encode(np.array(list(found), dtype="<i8").tobytes()).decode()


def unpack(word: object, names: list[str]) -> dict[str, Stamp]:
    """The inverse of ``pack``; nothing where the record is missing or does not fit."""
    try:
        content = base64.b64decode(str(word), validate=True)
    except (binascii.Error, ValueError):
        return {}
    if len(content) != 16 * len(names):
        return {}
    pairs = np.frombuffer(content, dtype="<i8").reshape(-1, 2).tolist()
    return {name: (date, size) for name, (date, size) in zip(names, pairs, strict=True)}


def differing(before: dict[str, Stamp], now: dict[str, Stamp]) -> set[str]:
    """Names whose file has changed or turned up; one that is gone is told when it is to be read."""
    return {name for name, stamp in now.items() if stamp not in (NOWHERE, before.get(name))}


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return NOWHERE
    return found.st_mtime_ns, found.st_size
