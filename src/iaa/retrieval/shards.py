"""Finished stretches of an embeddings file that is still being made: what a killed run leaves to the next."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from iaa.retrieval.embeddings import replace_file, write_tensors

Bad = list[tuple[str, str]]
"""Path and reason of each image that could not be read."""


class Parts:
    """A folder of ``START-STOP.safetensors``, one per stretch of rows, and the configuration they belong to.

    Stretches follow each other without a gap, so ``done`` is one number. Every part is written whole or not
    at all; one process at a time holds the folder. Parts of another configuration are refused, or with
    ``restart`` removed.
    """

    def __init__(self, folder: Path, config: dict[str, Any], *, restart: bool = False) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = hold(folder / "lock")
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
            found = json.loads(file.read_text()) if file.is_file() else {}
        except json.JSONDecodeError:
            found = {}
        self.stretches = self._chain()
        if restart or (found != config and not self.stretches):
            self._clear()
        elif found != config:
            raise ValueError(
                f"{self.folder} holds unfinished work of another kind ({differences(found, config)}): "
                "finish that one, or add --restart to throw it away"
            )
        replace_file(file, lambda temporary: _write(temporary, json.dumps(config, indent=1)))

    @property
    def done(self) -> int:
        """How many rows, from the first one on, are finished."""
        return self.stretches[-1][1] if self.stretches else 0

    def add(self, stop: int, rows: Tensor, z: Tensor, bad: Bad) -> None:
        """Keep the rows from ``done`` to ``stop``; those of unreadable images are missing in ``rows``."""
        path = self._file(self.done, stop)
        write_tensors(path, {"rows": rows, "z": z.contiguous()}, {"bad": json.dumps(bad)})
        self.stretches.append((self.done, stop))

    def collect(self) -> tuple[Tensor, Tensor, Bad]:
        """The numbers of all rows that have an embedding, these (N, D), and what could not be read."""
        parts = [_read(self._file(*stretch)) for stretch in self.stretches]
        full = [(rows, z) for rows, z, _ in parts if len(rows)]
        if not full:
            raise ValueError("not one image could be read")
        rows, z = (torch.cat(column) for column in zip(*full, strict=True))
        return rows, z, [one for _, _, bad in parts for one in bad]

    def remove(self) -> None:
        """The work is finished: leave nothing behind."""
        self._clear()
        self._lock.close()
        (self.folder / "lock").unlink(missing_ok=True)
        with suppress(OSError):  # something of another's lies in it
            self.folder.rmdir()

    def release(self) -> None:
        """Let another process continue."""
        self._lock.close()

    def _file(self, start: int, stop: int) -> Path:
        return self.folder / f"{start:09d}-{stop:09d}.safetensors"

    def _clear(self) -> None:
        """Only what this class has written, also what a kill left half-written."""
        for file in self.folder.iterdir():
            if re.fullmatch(r"\d+-\d+\.safetensors|config\.json|\.(config|\d+-\d+)-\w+\.\w+", file.name):
                file.unlink()
        self.stretches = []

    def _chain(self) -> list[tuple[int, int]]:
        """Stretches from row 0 on; one that cannot be read ends the chain and is made again."""
        found = sorted(self.folder.glob("[0-9]*-[0-9]*.safetensors"))
        ends = {int(start): int(stop) for start, _, stop in (file.stem.partition("-") for file in found)}
        stretches: list[tuple[int, int]] = []
        at = 0
        while at in ends:
            try:
                _read(self._file(at, ends[at]))
            except ValueError:
                break
            stretches.append((at, ends[at]))
            at = ends[at]
        kept = {self._file(*stretch) for stretch in stretches}
        for file in found:
            if file not in kept:
                file.unlink()
        return stretches


def differences(found: dict[str, Any], config: dict[str, Any]) -> str:
    """What two configurations do not share, in a few words.

    >>> differences({"model": "lite0", "dim": 128}, {"model": "convnet", "dim": 128})
    "model was 'lite0', is 'convnet'"
    """
    keys = [key for key in {**found, **config} if found.get(key) != config.get(key)]
    texts = [f"{key} was {found.get(key)!r}, is {config.get(key)!r}" for key in keys[:3]]
    return "; ".join(texts) + ("; …" if len(keys) > 3 else "")


def _read(path: Path) -> tuple[Tensor, Tensor, Bad]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            bad = [(name, reason) for name, reason in json.loads(file.metadata()["bad"])]
            return file.get_tensor("rows"), file.get_tensor("z"), bad
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def hold(path: Path) -> IO[str]:
    """A lock that dies with the process, even a killed one, and that worker processes do not inherit."""
    file = open(path, "w")  # noqa: SIM115 (held until the work is done)
    try:
        import fcntl

        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # no such locks on Windows
        pass
    except BlockingIOError as error:
        file.close()
        raise OSError("another process is writing there right now") from error
    return file
