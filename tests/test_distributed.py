"""Two processes on gloo against one, over the same batches."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import iaa
import tiny_runs
from iaa.config import Augment, Config, Network, Optimizer, Split
from iaa.train import train

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TORCHRUN = [
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "--no-python",
    sys.executable,
]


def words(config: Config) -> list[str]:
    """The configuration as words of the command line."""
    found = []
    for name, value in json.loads(config.to_json()).items():
        for key, inner in value.items() if isinstance(value, dict) else [(None, value)]:
            if isinstance(inner, list) or inner is None:
                continue
            flag = f"--{name}.{key}" if key else f"--{name}"
            if isinstance(inner, bool):
                found.append(flag if inner else f"--{name}.no-{key}")
            else:
                found += [flag, str(inner)]
    return [word.replace("_", "-") if word.startswith("--") else word for word in found]


@pytest.mark.parametrize(
    ("start", "loss", "augment"),
    [
        ([*TORCHRUN, "-m", "iaa"], "multi_similarity", Augment(refresh_every=2, neighbors=3)),
        (["-m", "iaa"], "norm_softmax", Augment(refresh="stream", neighbors=3)),
    ],
    ids=["torchrun", "devices"],
)
def test_two_processes_are_one_with_the_same_batches(tmp_path: Path, start, loss, augment):
    def config(out: str, devices: int) -> Config:
        return tiny_runs.tiny(
            tmp_path / "data",
            tmp_path / out,
            loss=loss,
            augment=augment,
            devices=devices,
            epochs=4,
            network=Network(dim=8, freeze_bn=True),  # its statistics would differ between halves of a batch
            optimizer=Optimizer(name="sgd", lr=0.03),  # Adam would hide a gradient of the wrong size
            split=Split(test_share=0.2, val_classes=0.25),
        )

    tiny_runs.images(tmp_path / "data")
    two = config("two", 2)
    line = [sys.executable, *start, "train", "--quiet", *words(two)]
    done = subprocess.run(line, capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'two' / 'run-1'}\n"  # by one of them
    alone, pair = train(config("one", 1), quiet=True), tmp_path / "two" / "run-1"
    losses = [[row["loss"] for row in tiny_runs.steps(folder)] for folder in (alone, pair)]
    assert len(losses[0]) > 8
    torch.testing.assert_close(*losses, rtol=0, atol=1e-4)
    for file in ("model", "statistics", "embeddings"):
        first, second = (load_file(folder / f"{file}.safetensors") for folder in (alone, pair))
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-4)
    assert tiny_runs.lines(alone)[-1]["val"] == pytest.approx(tiny_runs.lines(pair)[-1]["val"])


def test_what_two_processes_measure_is_one_network(tmp_path: Path):
    tiny_runs.images(tmp_path / "data")
    config = tiny_runs.tiny(tmp_path / "data", tmp_path, devices=2, epochs=1)
    line = [sys.executable, "-m", "iaa", "train", "--quiet", *words(config)]
    done = subprocess.run(line, capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
    assert done.returncode == 0, done.stderr
    kept = iaa.Embeddings.load(tmp_path / "run-1" / "embeddings.safetensors")
    images = [tmp_path / "data" / name for name in kept.ids]
    torch.testing.assert_close(iaa.load(tmp_path / "run-1").embed(images), kept.z, rtol=1e-4, atol=1e-4)


def test_no_thread_of_the_process_group_outlives_python(tmp_path: Path):
    tiny_runs.images(tmp_path / "data")
    config = tiny_runs.tiny(tmp_path / "data", tmp_path, devices=2, epochs=1)
    (tmp_path / "config.json").write_text(config.to_json())
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit, os\n"
        "from pathlib import Path\n"
        "@atexit.register\n"  # registered first, called last
        "def remaining():\n"
        "    threads = [path.read_text().strip() for path in Path('/proc/self/task').glob('*/comm')]\n"
        "    Path(f'threads-{os.environ[\"LOCAL_RANK\"]}').write_text(' '.join(threads))\n"
        "import iaa\n"
        "iaa.train(iaa.Config.from_json(Path('config.json').read_text()), quiet=True)\n"
    )
    line = [sys.executable, str(script)]
    done = subprocess.run(line, capture_output=True, text=True, env=ENVIRONMENT, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert "gloo" not in (tmp_path / f"threads-{rank}").read_text()
