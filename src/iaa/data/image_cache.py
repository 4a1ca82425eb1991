"""Decoded images kept in memory that all worker processes of one run share."""

import mmap
import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]


class ImageCache:
    """One block of memory, filled by whoever decodes an image first; a full block takes no more.

    The block is an anonymous shared mapping: forked workers see the same pages, no limit of /dev/shm applies,
    and memory is taken only as images arrive. A pickled copy (spawned workers) starts switched off.
    """

    def __init__(self, number: int, budget: int) -> None:
        self._block = np.frombuffer(mmap.mmap(-1, max(budget, 1)), dtype=np.uint8)
        table = mmap.mmap(-1, (3 * number + 1) * 8)
        self._place = np.frombuffer(table, dtype=np.int64, count=3 * number).reshape(number, 3)
        self._used = np.frombuffer(table, dtype=np.int64, offset=24 * number)
        self._lock = multiprocessing.Lock()
        self._budget = budget

    def get(self, row: int) -> Pixels | None:
        """The image as (height, width, 3), or None if it was never put here."""
        end, height, width = self._place[row].tolist()
        return self._block[end - height * width * 3 : end].reshape(height, width, 3) if end else None

    def put(self, row: int, pixels: Pixels) -> None:
        """Keep a copy, if it fits and is not there yet."""
        with self._lock:
            start = int(self._used[0])
            if start + pixels.size > self._budget or self._place[row, 0]:
                return
            self._used[0] = start + pixels.size
        self._block[start : start + pixels.size] = pixels.reshape(-1)
        self._place[row, 1:] = pixels.shape[:2]
        self._place[row, 0] = start + pixels.size  # last: from here on others may read it

    @property
    def used(self) -> int:
        """Bytes filled so far."""
        return int(self._used[0])

    def __len__(self) -> int:
        return int(np.count_nonzero(self._place[:, 0]))

    def __reduce__(self) -> tuple[Any, ...]:
        return ImageCache, (len(self._place), 0)


def free_memory() -> int:
    """Bytes this process may still take: what the system has left, within the container's limit."""
    free = [_available(), _left_in_group("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current")]
    legacy = "/sys/fs/cgroup/memory/memory."
    free.append(_left_in_group(legacy + "limit_in_bytes", legacy + "usage_in_bytes"))
    return min(amount for amount in free if amount is not None)


def _available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return 2**31


def _left_in_group(limit: str, used: str) -> int | None:
    try:
        most = Path(limit).read_text().strip()
        return None if most == "max" else int(most) - int(Path(used).read_text())
    except (OSError, ValueError):
        return None
