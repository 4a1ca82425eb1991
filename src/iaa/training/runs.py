"""The run directory: one run each, files that are whole or not there, and where a run stands."""

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from iaa.config import Config

PACKAGES = (
    "iaa",
    "torch",
    "torchvision",
    "timm",
    "pytorch-metric-learning",
    "lightning-fabric",
    "numpy",
    "safetensors",
)


def create(config: Config) -> Path:
    """A new directory ``NAME-NUMBER`` with ``config.json`` and ``surroundings.json``."""
    name = config.run.name or f"{config.data.partition(':')[0]}-{config.loss}"
    if config.run.name is None and not config.augment.copies:
        name += "-baseline"
    name = re.sub(r"[^\w.-]+", "-", name)
    parent = Path(config.run.out).expanduser()
    parent.mkdir(parents=True, exist_ok=True)
    taken = [
        int(m[1]) for m in (re.fullmatch(re.escape(name) + r"-(\d+)", p.name) for p in parent.iterdir()) if m
    ]
    number = max(taken, default=0) + 1
    while True:
        try:
            (folder := parent / f"{name}-{number}").mkdir()
            break
        except FileExistsError:  # another run was quicker
            number += 1
    write(folder / "config.json", config.to_json().encode())
    write_json(folder / "surroundings.json", surroundings(config))
    return folder


def surroundings(config: Config) -> dict[str, Any]:
    """Versions, commit, machine and seed."""
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "commit": _commit(),
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        "seed": config.seed,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def write(path: Path, content: bytes | Callable[[Path], None]) -> None:
    """Write beside the target, bring it to the disk, rename: whatever happens, a whole file stands there."""
    beside = path.with_name(f".{path.name}.part")
    try:
        if callable(content):
            content(beside)
        else:
            beside.write_bytes(content)
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
        beside.chmod(0o644)
        os.replace(beside, path)
        _sync_folder(path.parent)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """A JSON file, whole or not at all."""
    write(path, (json.dumps(content, indent=2) + "\n").encode())


class Log:
    """``log.jsonl``: a line per step and per epoch; without a path, nothing.

    ``keep`` is how many bytes belong to a checkpoint: going on from there drops the lines behind.
    """

    def __init__(self, path: Path | None, *, keep: int = 0) -> None:
        self._file = None if path is None else open(path, "ab")  # noqa: SIM115 (open as long as the run)
        if self._file is not None:
            self._file.truncate(keep)
            self._file.seek(keep)

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, **values: Any) -> None:
        """One line."""
        if self._file is not None:
            self._file.write((json.dumps(values) + "\n").encode())

    def flush(self) -> int:
        """Bring all lines to the disk; how many bytes there are."""
        if self._file is None:
            return 0
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """What the package was, marked as dirty if it has been changed since; other files do not count."""
    git = ["git", "-C", str(Path(__file__).parents[1])]
    try:
        commit, changed = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (("describe", "--always", "--abbrev=10"), ("status", "--porcelain", "."))
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + "-dirty" * bool(changed)
