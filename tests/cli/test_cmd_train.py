import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

import iaa
import tiny_runs
from iaa.cli import cmd_train, main
from iaa.config import RunOptions, load_config
from iaa.export.model_card import _data
from iaa.train import train


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny_runs.images(tmp_path_factory.mktemp("data"))


def words(data, out):
    run = ["--run.out", str(out), "--run.name", "run-1", "--run.logger", "none"]
    small = [
        "--images.size",
        "16",
        "--images.workers",
        "0",
        "--network.dim",
        "8",
        "--epochs",
        "1",
        "--no-report",
    ]
    small += ["--model", "convnet"]
    return ["--data", f"folder:{data}", *small, "--batch.classes", "4", "--augment.neighbors", "3", *run]


def test_train_prints_a_table_and_the_run_can_be_evaluated(data, tmp_path, capsys):
    assert main(["train", *words(data, tmp_path)]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("pixels", "untrained convnet", "trained", "R@1", "MAP@R"))
    assert str(tmp_path / "run-1") in out
    assert main(["evaluate", str(tmp_path / "run-1"), "--json"]) == 0
    scored = json.loads(capsys.readouterr().out)["files"][0]["metrics"]
    metrics = json.loads((tmp_path / "run-1" / "metrics.json").read_text())
    assert scored["MAP@R"]["value"] == pytest.approx(metrics["test"]["test"]["MAP@R"])


def test_quiet_prints_the_path_alone(data, tmp_path, capfd):
    assert main(["train", "emoji", *words(data, tmp_path), "--quiet", "--augment.copies", "0"]) == 0
    assert capfd.readouterr() == (f"{tmp_path / 'run-1'}\n", "")
    assert load_config(tmp_path / "run-1").augment.copies == 0


def test_a_dry_run_describes_the_run_and_writes_nothing(data, tmp_path, capsys):
    assert main(["train", *words(data, tmp_path), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "48 training samples of 8 classes (6 to 6 each)" in out
    assert all(word in out for word in ("parameters", "batches", "memory", "minutes for 1 epochs"))
    assert not list(tmp_path.iterdir())


def test_names_with_brackets_or_colons_are_shown_as_they_are(capsys):
    cmd_train._show_facts({"data": "folder:ten: of [/b]"})
    assert "folder:ten: of [/b]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["cars-mss"], "no preset, configuration or run 'cars-mss': did you mean 'cars-ms'"),
        (["--augment.copy", "2"], "unknown option --augment.copy; did you mean --augment.copies"),
        (["--loss", "tripplet"], "did you mean 'triplet'"),
        (["--model", "convnett"], "did you mean 'convnet'"),
        (["--data", "emojis"], "did you mean 'emoji'"),
        (
            ["--loss-options", "marginn", "2"],
            "loss_options of multi_similarity must be one of .* got .marginn",
        ),
        (["--resume", "nowhere"], "there is no run at nowhere"),
        (["--resume", "nowhere", "--epochs", "3"], "leave the other options out"),
        (["--device", "cuda"], "device cuda is not available here: use auto or cpu"),
        (["--device", "cpu", "--precision", "fp16"], "precision fp16 needs cuda or mps: use bf16"),
        (["--network.hidden", "9"], "network.hidden belongs to heads on embeddings:FILE"),
    ],
)
def test_errors_are_one_line(wrong, message, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    import re

    out = [] if wrong[0] in ("--resume", "cars-mss") else ["--run.out", str(tmp_path)]
    assert main(["train", *wrong, *out]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(message, error), error


def test_help_lists_presets_and_groups(capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", "--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "emoji" in out
    assert "cars-{triplet,contrastive,ms," in out
    for group in ("split", "images", "network", "batch", "augment", "optimizer", "run"):
        assert f"{group} options" in out


def test_ctrl_c_leaves_a_checkpoint_to_continue_from(data, tmp_path):
    config = tiny_runs.tiny(
        data, tmp_path, epochs=5000, run=RunOptions(out=str(tmp_path), name="run-1", logger="none")
    )
    (tmp_path / "config.json").write_text(config.to_json())
    line = [sys.executable, "-m", "iaa", "train", str(tmp_path / "config.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as run:
        while not (tmp_path / "run-1" / "checkpoint.safetensors").exists():
            assert run.poll() is None, run.communicate()
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
        _, error = run.communicate(timeout=60)
    assert run.returncode == 130
    assert (
        error.strip().splitlines()[-1] == f"stopped; continue with `iaa train --resume {tmp_path / 'run-1'}`"
    )
    assert "Traceback" not in error


def test_a_finished_run_is_left_as_it_is(tmp_path, capsys):
    root = tiny_runs.images(tmp_path / "images")
    folder = train(tiny_runs.tiny(root, tmp_path / "out", epochs=1), quiet=True).path
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert main(["train", "--resume", str(folder)]) == 0
    assert "this run is finished" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_a_run_can_be_held_against_the_frozen_network_it_began_with(data, tmp_path, capsys):
    before = ["embed", f"folder:{data}", "--model", "convnet", "--size", "16", "--test-share", "0.2"]
    assert main([*before, "--out", str(tmp_path / "before.safetensors"), "--workers", "0"]) == 0
    folder = train(tiny_runs.tiny(data, tmp_path, epochs=1), quiet=True).path
    assert main(["evaluate", str(folder), "--against", str(tmp_path / "before.safetensors")]) == 0
    assert "R@1" in capsys.readouterr().out


def test_an_image_whose_name_is_not_utf8_is_reported_before_the_work(tmp_path, capsys):
    root = tiny_runs.images(tmp_path / "data")
    try:
        shutil.copy(root / "c1" / "0.png", os.fsencode(root / "c1") + b"/caf\xe9.png")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    out = tmp_path / "out.safetensors"
    for command in (
        ["train", *words(root, tmp_path)],
        ["embed", f"folder:{root}", "--split", "all", "--out", str(out)],
    ):
        assert main(command) == 2
        assert r"c1/caf\udce9.png: its name is not UTF-8: rename it" in capsys.readouterr().err


def test_a_dry_run_of_a_run_to_resume_describes_that_run(data, tmp_path, capsys):
    (tmp_path / "config.json").write_text(tiny_runs.tiny(data, tmp_path).to_json())
    assert main(["train", "--resume", str(tmp_path), "--dry-run"]) == 0
    assert "48 training samples of 8 classes" in capsys.readouterr().out


def test_test_classes_that_are_trained_on_are_not_called_unseen(tmp_path, capsys):
    for part in ("train", "test"):
        tiny_runs.images(tmp_path / "data" / part, classes=4)
    config = tiny_runs.tiny(tmp_path / "data", tmp_path, epochs=1)
    (tmp_path / "config.json").write_text(config.to_json())
    assert main(["train", str(tmp_path / "config.json"), "--no-report"]) == 0
    printed = capsys.readouterr()
    assert "4 test classes are trained on as well: scores are not those of unseen classes" in printed.err
    assert "test classes, percent" in printed.out
    assert "unseen" not in printed.out
    assert main(["report", str(tmp_path / "run-1"), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "Scores on the test classes" in page
    assert "queries of 4 classes: how often" in page
    metrics = json.loads((tmp_path / "run-1" / "metrics.json").read_text())
    assert "4 of the test classes below were trained on as well." in _data(config, metrics)


@pytest.mark.parametrize("classes", [4, 5, 7])
def test_few_classes_are_enough_for_a_model_tonight(classes, tmp_path):
    root = tiny_runs.images(tmp_path / "data", classes=classes)
    folder = train(tiny_runs.tiny(root, tmp_path, epochs=1), quiet=True)
    assert len(iaa.Embeddings.load(folder / "embeddings.safetensors").labels.unique()) == 2


def test_too_few_are_reported_before_the_training(tmp_path, capsys):
    root = tiny_runs.images(tmp_path / "data", classes=3)
    assert main(["train", *words(root, tmp_path)]) == 2
    assert "a single class in its test part, so every neighbour would be right" in capsys.readouterr().err


def test_data_without_a_test_part_is_reported(tmp_path, capsys):
    root = tiny_runs.images(tmp_path / "data" / "train").parent
    assert main(["train", *words(root, tmp_path)]) == 2
    assert "has no test part" in capsys.readouterr().err
