"""Shards of an embeddings file in the making, shared by processes: a killed one leaves its own to others."""

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from iaa.files import Lock, read_json, write_json
from iaa.retrieval.shard_files import UnreadableImages, list_shards, read_shard, shard_file, write_shard

OPENING_SECONDS = 600.0
"""How long to wait for a process that is verifying the folder."""


class Shards:
    """A folder of ``START-STOP.safetensors``, one per range of rows, and the configuration they belong to.

    Any number of processes, also of several machines that share the folder, fill it together: each claims a
    range by a lock file, which the system frees when the process ends, however it ends. Shards are written
    atomically and verified by the first process that opens the folder; damaged ones are made again. Shards of
    another configuration are refused, or removed with ``restart``.

    Args:
        folder: where the shards are.
        config: what they are shards of.
        total: rows in all.
        batch_size: ranges begin and end at multiples of it, so that the same images meet in the same batch.
        save_every: rows of a range.
        threads: of each process on the CPU: sums may depend on their number.
        restart: remove the shards of another configuration.

    ``save_every`` and ``threads`` are those of the process that began; the others follow its plan.
    """

    def __init__(
        self,
        folder: Path,
        config: dict[str, Any],
        total: int,
        *,
        batch_size: int = 64,
        save_every: int = 1024,
        threads: int | None = None,
        restart: bool = False,
    ) -> None:
        for name, value in (("batch_size", batch_size), ("save_every", save_every), ("threads", threads)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")
        self.folder, self.config, self.total, self.batch_size = folder, config, total, batch_size
        self.plan = {
            "shard_rows": -(-save_every // batch_size) * batch_size,
            "threads": torch.get_num_threads() if threads is None else threads,
        }
        self.ranges: list[tuple[int, int]] = []
        self._claims: dict[int, Lock] = {}
        try:
            self._lock, alone = _open_lock(folder)
        except BlockingIOError as error:
            raise OSError(f"cannot use {folder}: another process is writing there right now") from error
        except OSError as error:
            raise OSError(f"cannot use {folder}: {error}") from error
        try:
            if alone:
                self._begin(restart)
                self._lock.share()
            else:
                self._join()
        except BaseException:
            self.release()
            raise

    def _begin(self, restart: bool) -> None:
        """Continue what is there, after verifying it."""
        file = self.folder / "config.json"
        try:
            former = read_json(file) if file.is_file() else None
        except ValueError:
            former = {}
        plan = {key: former.pop(key) for key in self.plan if key in former} if former else {}
        if former != self.config:
            if former is not None and list_shards(self.folder) and not restart:
                raise ValueError(
                    f"{self.folder} holds unfinished work of another kind "
                    f"({differences(former, self.config)}): "
                    "finish that one, or add --restart to throw it away"
                )
            self._clear()  # without a configuration it is finished, but not removed completely
            plan = {}
        self._verify()
        if all(type(number) is int and number > 0 for number in plan.values()):
            self.plan |= plan
        write_json(file, self.config | self.plan)

    def _join(self) -> None:
        """Take part in what other processes are doing right now."""
        others = read_json(self.folder / "config.json")
        self.plan = {key: others.pop(key) for key in self.plan}
        if others != self.config:
            raise ValueError(
                f"{self.folder} is in use: another process makes embeddings of another kind there "
                f"({differences(others, self.config)})"
            )
        self.refresh()

    @property
    def threads(self) -> int:
        """Threads that each process computes with on the CPU."""
        return self.plan["threads"]

    @property
    def done(self) -> int:
        """How many rows are finished, as of the last look into the folder."""
        return sum(stop - start for start, stop in self.ranges)

    @property
    def finished(self) -> bool:
        """Whether every row is done, or another process has even removed the folder because of that."""
        self.refresh()
        return not self._missing() or self.removed

    @property
    def removed(self) -> bool:
        """Whether another process has written the result and removed the shards."""
        return not (self.folder / "config.json").exists()

    def claim(self) -> tuple[int, int] | None:
        """A range that nobody is working on, reserved for this process; None if there is none right now."""
        size = self.plan["shard_rows"]
        self.refresh()
        for start, stop in self._missing():
            for cell in range(start // size, -(-stop // size)):
                if cell in self._claims:
                    continue
                try:
                    lock = Lock(self.folder / f"{cell:06d}.claim", make_folder=False)
                except BlockingIOError:
                    continue
                except FileNotFoundError:  # finished and removed by another process
                    return None
                first, last = max(start, cell * size), min(stop, (cell + 1) * size)
                self.refresh()  # another process may have finished it just before
                if any(begin < last and first < end for begin, end in self.ranges):
                    lock.release()
                    continue
                self._claims[cell] = lock
                return first, last
        return None

    def add(self, start: int, stop: int, rows: Tensor, z: Tensor, bad: UnreadableImages) -> None:
        """Keep the rows from ``start`` to ``stop``; those of unreadable images are missing in ``rows``."""
        write_shard(self.folder, start, stop, rows, z, bad)
        self.ranges.append((start, stop))
        self.unclaim(start)

    def unclaim(self, start: int) -> None:
        """Leave the claimed range that begins at this row to others."""
        lock = self._claims.pop(start // self.plan["shard_rows"], None)
        if lock is not None:
            lock.release()

    def collect(self) -> tuple[Tensor, Tensor, UnreadableImages]:
        """The numbers of all rows that have an embedding, these (N, D), and what could not be read."""
        filled, unreadable, at = [], [], 0
        self.refresh()
        for start, stop in sorted(self.ranges):
            rows, z, bad = read_shard(shard_file(self.folder, start, stop))
            new = rows >= at  # two processes of a slow network folder may have done the same rows
            if bool(new.any()):
                filled.append((rows[new], z[new]))
            unreadable += bad
            at = max(at, stop)
        if not filled:
            return torch.empty(0, dtype=torch.int64), torch.empty(0, 0), unreadable
        all_rows, all_z = (torch.cat(column) for column in zip(*filled, strict=True))
        return all_rows, all_z, unreadable

    def finishing(self) -> Lock | None:
        """The right to write the result, for one process at a time; None if another one has written it."""
        while not self.removed:
            with suppress(BlockingIOError, FileNotFoundError):
                lock = Lock(self.folder / "finish.claim", make_folder=False)
                if not self.removed:
                    return lock
                lock.release()
            time.sleep(0.1)
        return None

    def remove(self) -> None:
        """The work is finished: leave nothing behind."""
        self._clear()
        for lock in [*self.folder.glob("*.claim"), self.folder / "lock"]:
            lock.unlink(missing_ok=True)
        self.release()
        with suppress(OSError):  # somebody else's files are in it
            self.folder.rmdir()

    def release(self) -> None:
        """Leave the rest to other processes."""
        for lock in self._claims.values():
            lock.release()
        self._claims.clear()
        self._lock.release()

    def refresh(self) -> None:
        """See what other processes have finished."""
        self.ranges = list_shards(self.folder)

    def _missing(self) -> list[tuple[int, int]]:
        missing, at = [], 0
        for start, stop in [*sorted(self.ranges), (self.total, self.total)]:
            if start > at:
                missing.append((at, start))
            at = max(at, stop)
        return missing

    def _clear(self) -> None:
        """Remove only what this class has written, including what a kill left half-written."""
        (self.folder / "config.json").unlink(missing_ok=True)  # first: without it the rest counts for nothing
        for file in self.folder.iterdir():
            if re.fullmatch(r"\d+-\d+\.safetensors|\.(config|\d+-\d+)-\w+\.\w+", file.name):
                file.unlink(missing_ok=True)
        self.ranges = []

    def _verify(self) -> None:
        """Remove shards that are damaged or overlap another."""
        self.ranges, at = [], 0
        for start, stop in list_shards(self.folder):
            file = shard_file(self.folder, start, stop)
            try:
                rows, z, _ = read_shard(file)
                sound = not len(rows) or (
                    len(rows) == len(z) and start <= int(rows[0]) and int(rows[-1]) < stop
                )
            except ValueError:
                sound = False
            if sound and at <= start < stop <= self.total:
                self.ranges.append((start, stop))
                at = stop
            else:
                file.unlink()


def differences(former: dict[str, Any], config: dict[str, Any]) -> str:
    """What two configurations do not share, in a few words.

    >>> differences({"model": "lite0", "dim": 128}, {"model": "convnet", "dim": 128})
    "model was 'lite0', is 'convnet'"
    """
    keys = [key for key in {**former, **config} if former.get(key) != config.get(key)]
    texts = [f"{key} was {former.get(key)!r}, is {config.get(key)!r}" for key in keys[:3]]
    return "; ".join(texts) + ("; …" if len(keys) > 3 else "")


def _open_lock(folder: Path) -> tuple[Lock, bool]:
    """A lock that all processes in the folder hold, and whether there was no other process."""
    deadline = time.monotonic() + OPENING_SECONDS
    while True:
        try:
            return Lock(folder / "lock"), True
        except BlockingIOError:
            try:
                return Lock(folder / "lock", shared=True), False
            except BlockingIOError:  # a process is verifying the folder
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
