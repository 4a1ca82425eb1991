"""Killed and resumed, a run ends with the bits of one that was never interrupted."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tiny_runs
from iaa.config import Augment, Images, RunOptions, Split
from iaa.files import read_tensors, write_tensors
from iaa.train import train
from iaa.training import checkpoint

HERE = Path(__file__).parents[1]
PATHS = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PATHS}


@pytest.mark.parametrize(
    ("augment", "workers", "loss"),
    [
        (Augment(refresh="pass", refresh_every=2, neighbors=3), 1, "multi_similarity"),
        (Augment(refresh="stream", covariance="full", neighbors=3), 0, "soft_triple"),
        (Augment(refresh="stream", neighbors=3), 0, "triplet_distance"),  # its miner draws
        (Augment(refresh="pass", refresh_every=2, neighbors=3), 0, "contrastive"),  # with a memory
        (Augment(refresh="stream", neighbors=3, generator="residual"), 0, "multi_similarity"),
    ],
    ids=["pass", "stream", "random-miner", "memory", "residual"],
)
def test_killed_several_times(tmp_path, augment, workers, loss):
    config = tiny_runs.tiny(
        tiny_runs.images(tmp_path / "data"),
        tmp_path,
        epochs=5,
        loss=loss,
        memory=40 if loss == "contrastive" else 0,
        augment=augment,
        split=Split(test_share=0.2, val_classes=0.25),
        images=Images(size=16, workers=workers),
        run=RunOptions(untrained=False, logger="none", checkpoint_minutes=0, select="best"),
    )
    (tmp_path / "config.json").write_text(config.to_json())
    words = [
        sys.executable,
        str(HERE / "kill_training.py"),
        str(tmp_path / "config.json"),
        str(tmp_path / "out"),
        "3",
    ]
    done = subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("killed behind") == 3
    whole, killed = tmp_path / "out" / "whole", tmp_path / "out" / "killed"
    for file in ("model", "best", "statistics", "embeddings"):
        first, second = (load_file(folder / f"{file}.safetensors") for folder in (whole, killed))
        assert all(torch.equal(first[key], second[key]) for key in first), file
    assert tiny_runs.steps(whole) == tiny_runs.steps(killed)  # every loss, once
    epochs = [[row for row in tiny_runs.lines(folder) if "val" in row] for folder in (whole, killed)]
    assert len(epochs[0]) == 5
    for name in ("val", "loss", "images"):
        assert [row[name] for row in epochs[0]] == [row[name] for row in epochs[1]]


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A run that was interrupted behind its second checkpoint."""
    config = tiny_runs.tiny(tiny_runs.images(tmp_path / "data"), tmp_path)
    original, calls = checkpoint.save, []

    def save(*arguments):
        original(*arguments)
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", save)
        with pytest.raises(KeyboardInterrupt):
            train(config, quiet=True)
    return tmp_path / "run-1"


def test_a_half_written_checkpoint_is_refused_by_name(stopped):
    file = stopped / "checkpoint.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(
        ValueError,
        match=r"run-1/checkpoint\.safetensors is damaged|run-1/checkpoint\.safetensors is truncated",
    ):
        train(resume=stopped, quiet=True)


def test_so_is_one_of_another_run(stopped):
    other = train(
        replace(tiny_runs.tiny(stopped.parent / "data", stopped.parent), seed=1, epochs=1), quiet=True
    )
    (other / "checkpoint.safetensors").rename(stopped / "checkpoint.safetensors")
    with pytest.raises(ValueError, match=r"run-1/checkpoint\.safetensors belongs to another run"):
        train(resume=stopped, quiet=True)


def test_so_is_any_other_file(stopped):
    (stopped / "checkpoint.safetensors").unlink()
    from safetensors.torch import save_file

    save_file({"x": torch.ones(1)}, stopped / "checkpoint.safetensors")
    with pytest.raises(ValueError, match="is not a checkpoint"):
        train(resume=stopped, quiet=True)


@pytest.mark.parametrize("change", [{"more": 1}, {"epoch": "1"}, {"totals": 3}])
def test_a_position_that_makes_no_sense_is_refused_by_name(stopped, change):
    file = stopped / "checkpoint.safetensors"
    tensors, header = read_tensors(file)
    header["position"] = json.dumps({**json.loads(header["position"]), **change})
    write_tensors(file, tensors, header)
    with pytest.raises(ValueError, match=r"run-1/checkpoint\.safetensors"):
        train(resume=stopped, quiet=True)


def test_a_full_disk_leaves_the_last_good_checkpoint(stopped, monkeypatch):
    before = (stopped / "checkpoint.safetensors").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", full)
        with pytest.raises(OSError, match=r"is full: the last checkpoint is intact; .* --resume"):
            train(resume=stopped, quiet=True)
    assert (stopped / "checkpoint.safetensors").read_bytes() == before
    assert not list(stopped.glob(".*"))
    train(resume=stopped, quiet=True)
    assert (stopped / "metrics.json").exists()
