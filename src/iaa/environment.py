"""Where and with what a run was trained: package versions, commit, machine, threads."""

import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

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


def environment(*, seed: int) -> dict[str, Any]:
    """The content of ``surroundings.json``."""
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "commit": _commit(),
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        "threads": torch.get_num_threads(),
        "seed": seed,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of this package, with ``-dirty`` if its own files have changed since."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit, changes = (
            subprocess.run([*git, *command], capture_output=True, text=True, check=True).stdout.strip()
            for command in (("describe", "--always", "--abbrev=10"), ("status", "--porcelain", "."))
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + "-dirty" * bool(changes)
