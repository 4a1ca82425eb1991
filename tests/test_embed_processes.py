"""Several processes that embed the same images, against one."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import iaa
import tiny_datasets
from iaa import embed_processes
from iaa.cli import main
from iaa.embed_processes import device_list, device_threads
from iaa.gallery.gallery import Gallery
from iaa.retrieval.shards import Shards

OPTIONS = ["--model", "convnet", "--size", "16", "--workers", "0", "--batch-size", "2", "--save-every", "4"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "iaa"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> tuple[str, bytes]:
    """A folder of 60 images, two of which cannot be read, and the file that one process makes of it."""
    root = tmp_path_factory.mktemp("data")
    for label in range(6):
        for i in range(10):
            tiny_datasets.image(
                root / "test" / f"class {label}" / f"{i}.png", seed=10 * label + i, size=(24, 24)
            )
    for late in ("class 2/3.png", "class 2/4.png"):  # sound at both ends, broken within: found while reading
        file = root / "test" / late
        tiny_datasets.image(file, size=(64, 64))
        file.write_bytes(file.read_bytes()[:2000] + bytes(3000) + file.read_bytes()[5000:])
    spec, out = f"folder:{root}", root / "alone.safetensors"
    assert main([*command(spec, out), "--threads", "1"]) == 0
    return spec, out.read_bytes()


def command(spec: str, out: Path) -> list[str]:
    return ["embed", spec, "--out", str(out), *OPTIONS, "--on-bad-image", "skip"]


def start(*words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


@pytest.mark.parametrize(
    ("launcher", "more"), [(["-m", "iaa"], ["--devices", "2"]), (TORCHRUN, [])], ids=["devices", "torchrun"]
)
def test_two_processes_make_the_file_of_one(tmp_path, alone, launcher, more):
    spec, expected = alone
    out = tmp_path / "two.safetensors"
    process = start(*launcher, *command(spec, out), *more)
    told, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert told.count("wrote ") == 1
    assert out.read_bytes() == expected
    assert list(tmp_path.iterdir()) == [out]


def test_a_killed_process_costs_its_shard_which_the_other_makes(tmp_path, alone):
    spec, expected = alone
    out, parts = tmp_path / "x.safetensors", tmp_path / "x.safetensors.parts"
    processes = [start("-m", "iaa", *command(spec, out)) for _ in range(2)]
    while len(list(parts.glob("0*.safetensors"))) < 2:
        assert processes[0].poll() is None
        time.sleep(0.002)
    processes[0].kill()
    assert processes[0].wait() == -signal.SIGKILL
    assert not out.exists()
    _, errors = processes[1].communicate(timeout=600)
    assert processes[1].returncode == 0, errors
    assert out.read_bytes() == expected
    assert list(tmp_path.iterdir()) == [out]
    processes[0].communicate()


def test_the_process_that_another_one_started_may_be_killed_too(tmp_path, alone):
    spec, expected = alone
    out = tmp_path / "x.safetensors"
    process = start("-m", "iaa", *command(spec, out), "--devices", "2")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.parent.exists():
        pytest.skip("needs /proc")

    def workers() -> list[int]:
        pids = map(int, children.read_text().split())
        return [pid for pid in pids if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]

    while not workers():
        assert process.poll() is None
        time.sleep(0.002)
    os.kill(workers()[0], signal.SIGKILL)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert "process 2 of 2 ended early (exit code -9)" in errors
    assert out.read_bytes() == expected


def test_a_gallery_is_filled_by_two_processes(run):
    one = Gallery.open(iaa.load(run))
    file = Path(one.name)
    expected = file.read_bytes()
    file.unlink()
    two = Gallery.open(iaa.load(run), devices=2)
    assert two.name == one.name
    assert file.read_bytes() == expected
    assert torch.equal(two.data.z, one.data.z)


def test_a_process_of_its_own_keeps_freed_memory(tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr(embed_processes, "keep_freed_memory", lambda: steps.append("keep"))
    monkeypatch.setattr(embed_processes, "embed_images", lambda *_, **__: steps.append("embed"))
    content = tmp_path / "model.pickle"
    content.write_bytes(pickle.dumps((torch.nn.Identity(), None)))
    job = embed_processes._Job(tmp_path / "parts", {}, 1, 1, "cpu", "fp32", 0)
    embed_processes._work(job, content, os.getpid())
    assert steps == []  # others have finished and removed the folder
    parts = Shards(tmp_path / "parts", {}, 1, batch_size=1)
    embed_processes._work(job, content, os.getpid())
    assert steps == ["keep", "embed"]
    parts.release()


def test_devices_that_do_not_exist():
    cpu = torch.device("cpu")
    assert device_list(cpu, 3) == [cpu] * 3
    assert device_threads(cpu, 10_000) == 1
    with pytest.raises(ValueError, match="devices must be 1 or more, got 0"):
        device_list(cpu, 0)
    with pytest.raises(ValueError, match="choose device cuda, not cuda:1"):
        device_list(torch.device("cuda:1"), 2)
    with pytest.raises(ValueError, match=f"there are {torch.cuda.device_count()} GPUs here, not 99"):
        device_list(torch.device("cuda"), 99)
