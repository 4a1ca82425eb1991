"""The run directory as an object."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import iaa
import tiny_runs
from iaa.config import Config, RunOptions
from iaa.data import custom
from iaa.data.dataset import ClassSplit
from iaa.runs import Run


@pytest.fixture
def run(trained, tmp_path) -> Run:
    """A copy to damage."""
    return Run(shutil.copytree(trained, tmp_path / "run-1"))


def test_a_finished_run_answers_for_all_its_files(run):
    assert run.finished
    assert run.config.data.startswith("folder:")
    assert (
        run.metrics["test"]["test"]["R@1"]
        == json.loads((run / "metrics.json").read_text())["test"]["test"]["R@1"]
    )
    assert [row["epoch"] for row in run.log if "step" not in row] == [0]
    assert run.environment["threads"] == torch.get_num_threads()
    assert run.embeddings().z.shape == (10, 8)
    assert run.statistics.count.sum() == 20
    assert isinstance(run.model, iaa.Model)
    assert run.model.path == run.path


def test_scores_can_be_read_off_the_run(run, tmp_path):
    scores = run.metrics["test"]["test"]
    text = f"{run.path}: R@1 {scores['R@1']:.1f}, MAP@R {scores['MAP@R']:.1f} (epoch 1 of 1)"
    assert str(run) == text
    assert repr(run) == f"<Run {text}>"
    assert str(Run(tmp_path / "none")) == f"{tmp_path / 'none'}: there is no run here"


def test_a_run_is_a_path_where_one_is_expected(run):
    assert os.fspath(run) == str(run.path)
    assert Path(run) == run.path
    assert (run / "config.json").read_text() == run.config.to_json()
    assert Run(run) == run == Run(str(run.path))
    assert len({run, Run(run.path)}) == 1
    assert iaa.load(run).path == run.path


def test_the_network_needs_none_of_the_weights_training_began_with(run, monkeypatch):
    config = json.loads((run / "config.json").read_text())
    config["network"] |= {"pretrained": True, "weights": "/gone/weights.pth"}
    (run / "config.json").write_text(json.dumps(config))
    expected = run.embeddings()
    network = Run(run.path).network()
    assert not network.training
    opened = Run(run.path)
    part = opened.data.tests["test"]
    images, _, rows = next(iter(opened.data.in_order(part, network.preprocessing)))
    with torch.no_grad():
        torch.testing.assert_close(network(images), expected.z[rows], rtol=1e-4, atol=1e-5)
    (run / "training.safetensors").unlink(missing_ok=True)
    assert set(opened.embeddings("train").split) == {"train"}


def test_embeddings_keep_the_sequences_of_a_table(tmp_path):
    images = sorted(tiny_runs.images(tmp_path / "data", classes=8, each=3).glob("*/*.png"))
    rows = [f"{file},{file.parent.name},video {file.stem}" for file in images]
    (tmp_path / "t.csv").write_text("\n".join(["path,label,sequence", *rows]))
    config = tiny_runs.tiny(
        tmp_path / "data", tmp_path / "runs", data=f"table:{tmp_path / 't.csv'}", epochs=1
    )
    made = iaa.train(config, quiet=True)
    for part in ("test", "train"):
        data = made.embeddings(part)
        assert data.sequence == [f"video {Path(id).stem}" for id in data.ids]


def test_opening_a_network_draws_no_random_number(run):
    before = torch.get_rng_state()
    run.network()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("metrics.json", lambda run: run.metrics),
        ("surroundings.json", lambda run: run.environment),
        ("model.safetensors", lambda run: run.network()),
        ("statistics.safetensors", lambda run: run.statistics),
        ("log.jsonl", lambda run: run.log),
    ],
)
def test_a_missing_file_says_how_to_continue(run, name, read):
    (run / name).unlink()
    with pytest.raises(FileNotFoundError, match=rf"has no {name}: .*`iaa train --resume {run.path}`"):
        read(run)
    with pytest.raises(FileNotFoundError, match="there is no run at"):
        read(Run(run.path / "nowhere"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("epoch"), "'epoch' is missing"),
        (lambda m: m["train"].update(samples="many"), "'samples' of 'train'"),
        (lambda m: m["table"]["trained"].clear(), "must hold the scores"),
        (lambda m: m["table"]["trained"]["test"].update({"R@1": None}), "must be numbers"),
        (lambda m: m["test"].update(test=3), "must hold the scores"),
    ],
)
def test_damaged_scores_are_named(run, change, message):
    metrics = json.loads((run / "metrics.json").read_text())
    change(metrics)
    (run / "metrics.json").write_text(json.dumps(metrics))
    with pytest.raises(ValueError, match=rf"metrics\.json is damaged: .*{message}"):
        _ = run.metrics


def test_weights_of_another_type_are_refused(run):
    from safetensors.torch import load_file, save_file

    state = load_file(run / "model.safetensors")
    state["head.bias"] = state["head.bias"].int()
    save_file(state, run / "model.safetensors")
    with pytest.raises(ValueError, match=r"head\.bias must hold torch\.float32, got torch\.int32"):
        run.network()


def test_a_given_name_is_the_directory_while_it_is_free(tmp_path):
    named, free = (Config(run=RunOptions(out=str(tmp_path), name=name)) for name in ("a b", None))
    assert [Run.create(named).name for _ in range(3)] == ["a-b", "a-b-1", "a-b-2"]
    assert [Run.create(free).name for _ in range(2)] == [
        "emoji-multi_similarity-1",
        "emoji-multi_similarity-2",
    ]
    assert {run.name for run in Run.list(tmp_path)} == {
        "a-b",
        "a-b-1",
        "a-b-2",
        "emoji-multi_similarity-1",
        "emoji-multi_similarity-2",
    }
    assert not any(run.finished for run in Run.list(tmp_path))
    assert list(Run.list(tmp_path / "nowhere")) == []


def test_a_folder_is_listed_once_by_a_command(tmp_path, monkeypatch):
    pytest.importorskip("jinja2")
    calls, original = [], custom.folder
    monkeypatch.setattr(custom, "folder", lambda *a, **k: calls.append(1) or original(*a, **k))
    root = tiny_runs.images(tmp_path / "data", classes=6, each=5)
    options = RunOptions(out=str(tmp_path), name="run-1", untrained=True, logger="none")
    run = iaa.train(tiny_runs.tiny(root, tmp_path, epochs=1, run=options), quiet=True)
    assert run.report(quiet=True) == tmp_path / "run-1" / "report.html"
    assert len(calls) == 1


def test_a_run_cannot_be_trained_twice_at_once(run):
    (run / "metrics.json").unlink()
    line = [sys.executable, "-m", "iaa", "train", "--resume", str(run.path), "--quiet"]
    with run.lock():
        done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 2
    assert (
        done.stderr.strip().splitlines()[-1].endswith(f"run {run.path} is being trained by another process")
    )
    assert "Traceback" not in done.stderr
    assert not run.finished


def test_recorded_classes_are_read_back_and_damage_is_named(tmp_path):
    (tmp_path / "classes.json").write_text('{"train": ["a"], "val": [], "test": ["b"]}')
    assert Run(tmp_path).classes == ClassSplit(train=("a",), test=("b",))
    (tmp_path / "classes.json").write_text('{"train": ["a"], "val": "a", "test": []}')
    with pytest.raises(ValueError, match=r"val in .*classes\.json must be a list of texts, got 'a'"):
        _ = Run(tmp_path).classes
    (tmp_path / "classes.json").write_text('{"train": ["a"], "test": []}')
    with pytest.raises(ValueError, match=r"classes\.json is incomplete: it lacks val"):
        _ = Run(tmp_path).classes
