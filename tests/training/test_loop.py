"""What surrounds Algorithm 1: signals, a full disk at the end, the number of threads."""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

import tiny_runs
from iaa.config import RunOptions
from iaa.files import replacing
from iaa.runs import Run
from iaa.train import train
from iaa.training import finalize
from iaa.training.loop import recorded_threads


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_signals_leave_a_checkpoint_and_their_exit_code(tmp_path, number, code):
    options = RunOptions(out=str(tmp_path), name="run", logger="none")
    config = tiny_runs.tiny(tiny_runs.images(tmp_path / "data"), tmp_path, epochs=5000, run=options)
    (tmp_path / "config.json").write_text(config.to_json())
    line = [sys.executable, "-m", "iaa", "train", str(tmp_path / "config.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        while not (tmp_path / "run" / "checkpoint.safetensors").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(getattr(signal, number))
        _, error = process.communicate(timeout=120)
    assert process.returncode == code
    assert error.strip().splitlines()[-1] == f"stopped; continue with `iaa train --resume {tmp_path / 'run'}`"


def test_a_full_disk_at_the_end_is_one_line_and_the_run_can_be_finished(tmp_path, monkeypatch):
    config = tiny_runs.tiny(tiny_runs.images(tmp_path / "data"), tmp_path, epochs=1)

    def full(path, *_):
        with replacing(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(finalize, "write_tensors", full)
        with pytest.raises(
            OSError, match=r"^the disk of .*run-1 is full: the last checkpoint is intact; .*--resume"
        ):
            train(config, quiet=True)
    assert not Run(tmp_path / "run-1").finished
    assert train(resume=tmp_path / "run-1", quiet=True).finished


def test_other_errors_of_the_disk_stay_what_they_are(tmp_path, monkeypatch):
    config = tiny_runs.tiny(tiny_runs.images(tmp_path / "data"), tmp_path, epochs=1)

    def refuse(path, *_):
        raise PermissionError(errno.EACCES, "no permission", str(path))

    monkeypatch.setattr(finalize, "write_tensors", refuse)
    with pytest.raises(PermissionError, match="no permission"):
        train(config, quiet=True)


def test_resuming_uses_the_recorded_number_of_threads(trained, tmp_path, caplog):
    run = Run(tmp_path)
    content = json.loads((trained / "surroundings.json").read_text())
    before = torch.get_num_threads()
    for threads, warned in ((before + 1, before + 1 > (os.cpu_count() or 1)), (500, True), (before, False)):
        caplog.clear()
        caplog.set_level(logging.WARNING)
        (tmp_path / "surroundings.json").write_text(json.dumps(content | {"threads": threads}))
        with recorded_threads(Run(run.path)):
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == before
        assert (f"began with {threads} threads" in caplog.text) == warned


def test_a_new_run_keeps_the_number_there_is(tmp_path):
    before = torch.get_num_threads()
    with recorded_threads(None):
        assert torch.get_num_threads() == before
    with recorded_threads(Run(tmp_path)):  # nothing is recorded there
        assert torch.get_num_threads() == before
