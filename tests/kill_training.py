"""A process of its own: trains in forked children and kills each with SIGKILL once it has come far enough.

python kill_training.py CONFIG.json OUT KILLS      prints the run directory that was killed and resumed
"""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import lightning_fabric  # noqa: F401 (loaded once, here, rather than by every child)
import safetensors.torch

from iaa.config import Config
from iaa.torchvision_compat import torchvision
from iaa.train import train

torchvision()
import torchvision.transforms.v2  # noqa: E402


def stands_at(folder: Path) -> int:
    import json

    try:
        with safetensors.safe_open(folder / "checkpoint.safetensors", "pt") as file:
            position = json.loads(file.metadata()["position"])
    except (OSError, RuntimeError):  # not there yet, or replaced while it was opened
        return 0
    return int(position["epoch"]) * 1000 + int(position["step"])


def child(config: Config, folder: Path | None) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            train(None if folder else config, resume=folder, quiet=True)
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


def main(config_file: str, out: str, kills: int) -> None:
    config = Config.from_json(Path(config_file).read_text())
    whole = replace(config, run=replace(config.run, out=out, name="whole"))
    assert os.waitpid(child(whole, None), 0)[1] == 0
    config = replace(config, run=replace(config.run, out=out, name="killed"))
    folder = Path(out) / "killed"
    for kill in range(kills):
        pid = child(config, folder if kill else None)
        before = stands_at(folder) if kill else 0
        while stands_at(folder) <= before + 1:  # so that every life gets at least two steps further
            time.sleep(0.001)
            assert os.waitpid(pid, os.WNOHANG)[0] == 0, "it ended before it could be killed"
        os.kill(pid, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        assert not (folder / "metrics.json").exists()
        print("killed behind", stands_at(folder), flush=True)
    assert os.waitpid(child(config, folder), 0)[1] == 0


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
