"""Shards of an embeddings file that is still being made: what a killed run leaves to the next one."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from iaa.files import Lock, read_json, read_tensors, write_json, write_tensors

UnreadableImages = list[tuple[str, str]]
"""Path and reason of each image that could not be read."""


class Shards:
    """A folder of ``START-STOP.safetensors``, one per range of rows, and the configuration they belong to.

    Ranges follow each other without a gap, so ``done`` is one number. Shards are written atomically and
    verified when the folder is opened: a damaged one and all after it are made again. One process at a time
    uses the folder. Shards of another configuration are refused, or removed with ``restart``.
    """

    def __init__(self, folder: Path, config: dict[str, Any], *, restart: bool = False) -> None:
        self.folder = folder
        try:
            self._lock = Lock(folder / "lock")
        except BlockingIOError as error:
            raise OSError(f"cannot use {folder}: another process is writing there right now") from error
        except OSError as error:
            raise OSError(f"cannot use {folder}: {error}") from error
        try:
            self._open(config, restart)
        except BaseException:
            self.release()
            raise

    def _open(self, config: dict[str, Any], restart: bool) -> None:
        file = self.folder / "config.json"
        try:
            former = read_json(file) if file.is_file() else {}
        except ValueError:
            former = {}
        self.ranges = self._finished_ranges()
        if restart or (former != config and not self.ranges):
            self._clear()
        elif former != config:
            raise ValueError(
                f"{self.folder} holds unfinished work of another kind ({differences(former, config)}): "
                "finish that one, or add --restart to throw it away"
            )
        write_json(file, config)

    @property
    def done(self) -> int:
        """How many rows, from the first one on, are finished."""
        return self.ranges[-1][1] if self.ranges else 0

    def add(self, stop: int, rows: Tensor, z: Tensor, bad: UnreadableImages) -> None:
        """Keep the rows from ``done`` to ``stop``; those of unreadable images are missing in ``rows``."""
        write_tensors(self._file(self.done, stop), {"rows": rows, "z": z}, {"bad": json.dumps(bad)})
        self.ranges.append((self.done, stop))

    def collect(self) -> tuple[Tensor, Tensor, UnreadableImages]:
        """The numbers of all rows that have an embedding, these (N, D), and what could not be read."""
        shards = [_read_shard(self._file(*limits)) for limits in self.ranges]
        filled = [(rows, z) for rows, z, _ in shards if len(rows)]
        if not filled:
            raise ValueError("not one image could be read")
        rows, z = (torch.cat(column) for column in zip(*filled, strict=True))
        return rows, z, [image for _, _, bad in shards for image in bad]

    def remove(self) -> None:
        """The work is finished: leave nothing behind."""
        self._clear()
        self._lock.release()
        (self.folder / "lock").unlink(missing_ok=True)
        with suppress(OSError):  # somebody else's files are in it
            self.folder.rmdir()

    def release(self) -> None:
        """Let another process continue."""
        self._lock.release()

    def _file(self, start: int, stop: int) -> Path:
        return self.folder / f"{start:09d}-{stop:09d}.safetensors"

    def _clear(self) -> None:
        """Remove only what this class has written, including what a kill left half-written."""
        for file in self.folder.iterdir():
            if re.fullmatch(r"\d+-\d+\.safetensors|config\.json|\.(config|\d+-\d+)-\w+\.\w+", file.name):
                file.unlink()
        self.ranges = []

    def _finished_ranges(self) -> list[tuple[int, int]]:
        """Ranges from row 0 on; the first that is missing or damaged ends them, and later files go."""
        files = sorted(self.folder.glob("[0-9]*-[0-9]*.safetensors"))
        stops = {int(start): int(stop) for start, _, stop in (file.stem.partition("-") for file in files)}
        ranges: list[tuple[int, int]] = []
        start = 0
        while start in stops:
            stop = stops[start]
            try:
                rows, z, _ = _read_shard(self._file(start, stop))
                if len(rows) and not (len(rows) == len(z) and start <= int(rows[0]) and int(rows[-1]) < stop):
                    break
            except ValueError:
                break
            ranges.append((start, stop))
            start = stop
        kept = {self._file(*limits) for limits in ranges}
        for file in files:
            if file not in kept:
                file.unlink()
        return ranges


def differences(former: dict[str, Any], config: dict[str, Any]) -> str:
    """What two configurations do not share, in a few words.

    >>> differences({"model": "lite0", "dim": 128}, {"model": "convnet", "dim": 128})
    "model was 'lite0', is 'convnet'"
    """
    keys = [key for key in {**former, **config} if former.get(key) != config.get(key)]
    texts = [f"{key} was {former.get(key)!r}, is {config.get(key)!r}" for key in keys[:3]]
    return "; ".join(texts) + ("; …" if len(keys) > 3 else "")


def _read_shard(path: Path) -> tuple[Tensor, Tensor, UnreadableImages]:
    tensors, header = read_tensors(path, require_checksum=True)
    try:
        rows, z = tensors["rows"], tensors["z"]
        bad = [(str(name), str(reason)) for name, reason in json.loads(header["bad"])]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if rows.dtype != torch.int64 or rows.ndim != 1 or z.dtype != torch.float32 or z.ndim != 2:
        raise ValueError(f"{path} is damaged: it holds {rows.dtype} rows and {z.dtype} vectors")
    return rows, z, bad
