import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tiny_server
from iaa.cli import main


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return tiny_server.trained(tmp_path_factory.mktemp("run"))


def test_onnx_prints_the_largest_difference_and_what_stays_outside(run, tmp_path):
    """In a process of its own: what the exporter says of its insides must not reach the user."""
    arguments = ["export", str(run), "--out", str(tmp_path / "m.onnx")]
    done = subprocess.run(
        [sys.executable, "-m", "iaa", *arguments], capture_output=True, text=True, check=True
    )
    first, second, third = done.stdout.splitlines()
    assert first.startswith(f"wrote {tmp_path / 'm.onnx'}: ")
    assert "8 numbers per embedding" in first
    assert second.startswith("checked with onnxruntime against PyTorch: largest difference ")
    assert "on 8 of its own images, in batches of 1, 3 and 8" in second
    assert third == "it normalises pixels but does not resize or crop: examples/onnx_search.py shows how"
    assert done.stderr == ""


def test_safetensors_are_written_into_the_run(run, capsys):
    assert main(["export", str(run), "--to", "safetensors"]) == 0
    assert capsys.readouterr().out == (
        f"wrote {run / 'safetensors'}: model.safetensors, config.json, preprocessing.json, metrics.json, "
        "README.md\n"
    )
    assert main(["export", str(run), "--to", "safetensors"]) == 0  # and is replaced


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "x.pt"], "--out must name a .onnx file, got x.pt"),
        (["--to", "safetensors", "--out", "x.safetensors"], "--out must name a folder for safetensors"),
        (["--vectors"], "was trained on images"),
        (["--to", "safetensors", "--vectors"], "--vectors is for onnx"),
    ],
)
def test_errors_are_one_line(run, arguments, message, capsys):
    assert main(["export", str(run), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("missing", ["model.safetensors", "metrics.json", "config.json"])
def test_an_incomplete_run_is_reported(run, tmp_path, missing, capsys):
    part = tmp_path / "part"
    part.mkdir()
    for file in run.iterdir():
        if file.is_file() and file.name != missing:
            (part / file.name).write_bytes(file.read_bytes())
    assert main(["export", str(part)]) == 2
    assert missing in capsys.readouterr().err
    assert not (part / "model.onnx").exists()
    assert main(["export", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["onnx", "safetensors"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda metrics: metrics.clear(), "'test' is missing"),
        (lambda metrics: metrics.pop("train"), "'train' is missing"),
        (lambda metrics: metrics["train"].clear(), "'samples' of 'train' is missing"),
        (lambda metrics: metrics.update(epoch="1"), "'epoch' is missing or has the wrong type"),
        (lambda metrics: metrics.update(table={"untrained": 3}), "'table' must hold the scores"),
    ],
)
def test_damaged_metrics_are_reported_with_the_file(run, tmp_path, to, change, message, capsys):
    part = tmp_path / "part"
    shutil.copytree(run, part)
    metrics = json.loads((run / "metrics.json").read_text())
    change(metrics)
    (part / "metrics.json").write_text(json.dumps(metrics))
    out = tmp_path / ("x.onnx" if to == "onnx" else "x")
    assert main(["export", str(part), "--to", to, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert f"{part / 'metrics.json'} is damaged: {message}" in error
    assert error.count("\n") == 1


def test_a_folder_that_was_searched_in_can_be_exported_to_again(run, tmp_path):
    (tmp_path / "st" / "galleries").mkdir(parents=True)
    assert main(["export", str(run), "--to", "safetensors", "--out", str(tmp_path / "st")]) == 0


def test_a_folder_as_the_file_is_reported_before_anything_is_loaded(tmp_path, capsys):
    (tmp_path / "m.onnx").mkdir()
    assert main(["export", str(tmp_path / "nowhere"), "--out", str(tmp_path / "m.onnx")]) == 2
    assert f"--out must name a .onnx file, got the folder {tmp_path / 'm.onnx'}" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["export", "serve"])
def test_help_calls_the_run_a_run(verb, capsys):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    assert " RUN" in capsys.readouterr().out.splitlines()[0]


def test_an_embeddings_file_is_not_a_run(run, capsys):
    assert main(["export", str(run / "embeddings.safetensors")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
