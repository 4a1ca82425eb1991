import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import hostile_gallery
import tiny_runs
from iaa import Embeddings, Run
from iaa.cli import main
from iaa.errors import need

for package in ("jinja2", "matplotlib", "sklearn"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run with its report, as `iaa train` leaves it."""
    data = tiny_runs.images(tmp_path_factory.mktemp("data"), classes=16)
    out = tmp_path_factory.mktemp("runs")
    arguments = [
        "--run.out",
        str(out),
        "--run.name",
        "run-1",
        "--run.logger",
        "none",
        "--split.val-classes",
        "0.2",
    ]
    arguments += ["--images.size", "16", "--images.workers", "0", "--network.dim", "8", "--epochs", "2"]
    arguments += ["--batch.classes", "4", "--augment.neighbors", "3", "--split.test-share", "0.4"]
    assert main(["train", "--data", f"folder:{data}", "--model", "convnet", *arguments]) == 0
    return out / "run-1"


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gallery")
    hostile_gallery.embeddings(folder, classes=12).save(folder / "vectors.safetensors")
    return folder / "vectors.safetensors"


def sections(page: Path) -> list[str]:
    return re.findall(r'<section id="([^"]+)"', page.read_text())


def test_a_training_ends_with_a_page_of_everything(run):
    page = run / "report.html"
    expected = [
        "results",
        "retrieval",
        "training",
        "correlation",
        "space",
        "synthetics",
        "classes",
        "cost",
        "run",
    ]
    assert sections(page) == [*expected, "left-out"]
    text = page.read_text()
    metrics = json.loads((run / "metrics.json").read_text())
    assert f"{metrics['test']['test']['R@1']:.1f} %" in text
    assert "pixels (16 x 16)" in text
    assert "Held-out classes" in text
    assert f"<code>iaa analyze decode {run}</code>" in text  # what is not there, and what brings it


def test_quiet_is_quiet(run, capfd):
    from iaa.cli.cmd_train import _report

    (run / "report.html").unlink()
    _report(Run(run), quiet=True)
    assert capfd.readouterr() == ("", "")
    assert "results" in sections(run / "report.html")


def test_runs_stand_side_by_side(run, tmp_path):
    other = tmp_path / "other-run"
    shutil.copytree(run, other)
    for file in ("embeddings.safetensors", "training.safetensors"):
        old = Embeddings.load(other / file)
        replace(old, z=-(old.z.flip(1) ** 2)).save(other / file)
    page = tmp_path / "both.html"
    assert main(["report", str(run), str(other), "--out", str(page), "--queries", "3"]) == 0
    text = page.read_text()
    assert "<small>to run-1</small>" in text
    assert re.search(r"p [<=] \d\.\d{3}", text)
    assert text.count('<p class="who">other-run</p>') == text.count('<p class="who">run-1</p>') == 6
    assert "Synthetics of other-run" in text


def test_figures_go_to_files(vectors, tmp_path, capsys):
    arguments = [
        "report",
        str(vectors),
        "--out",
        str(tmp_path / "page.html"),
        "--figures",
        str(tmp_path / "figures"),
    ]
    assert main(arguments) == 0
    page, *written = [Path(line) for line in capsys.readouterr().out.split()]
    assert page == tmp_path / "page.html"
    assert all(path.parent == tmp_path / "figures" and path.stat().st_size > 500 for path in written)
    drawn = {"tsne-originals", "tsne-synthetics", "correlation", "similarity", "variety", "weights"}
    assert {f"{name}{ending}" for name in drawn for ending in (".svg", ".png")} <= {p.name for p in written}
    strips = {"queries-drawn-at-random.png", "the-worst-queries.png", "nearest-real-images.png"}
    assert strips <= {path.name for path in written}


def test_vectors_without_images_leave_sections_out_and_say_why(vectors, tmp_path):
    bare = Embeddings.load(vectors)
    alone = tmp_path / "alone.safetensors"
    Embeddings(bare.z, bare.labels, class_names=bare.class_names).save(alone)
    page = tmp_path / "page.html"
    assert main(["report", str(alone), "--out", str(page)]) == 0
    result = sections(page)
    assert {"results", "correlation", "space", "classes", "left-out"} <= set(result)
    assert not {"retrieval", "training", "synthetics", "cost"} & set(result)
    text = page.read_text()
    assert "the images cannot be found, such as" in text
    assert "there is no log.jsonl with a complete epoch" in text
    assert "<img" not in text


def test_the_folder_of_images_can_be_given(vectors, tmp_path):
    bare = Embeddings.load(vectors)
    moved = tmp_path / "moved.safetensors"
    Embeddings(bare.z, bare.labels, bare.ids, bare.class_names).save(moved)
    page = tmp_path / "page.html"
    arguments = ["report", str(moved), "--out", str(page), "--images", str(vectors.parent), "--queries", "2"]
    assert main([*arguments, "--answers", "3"]) == 0
    assert "retrieval" in sections(page)
    assert page.read_text().count('class="tile query"') >= 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no such run or embeddings file: nowhere"),
        (["RUN", "--out", "page.pdf"], "out must name a .html file, got page.pdf"),
        (["RUN", "--queries", "0"], "queries and answers must be at least 1, got 0 and 5"),
        (["EMPTY"], "has no embeddings of 'test': it is not a run directory"),
    ],
)
def test_errors_are_one_line(arguments, message, run, tmp_path, capsys):
    places = {"RUN": str(run), "EMPTY": str(tmp_path)}
    assert main(["report", *(places.get(word, word) for word in arguments)]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1
    assert message in error[0]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (RuntimeError("out of ink"), "no report.html: out of ink; `iaa report"),
        (
            ImportError("jinja2 is not installed: pip install 'iaa[report]'"),
            "no report.html: jinja2 is not installed: pip install 'iaa[report]'",
        ),
        (KeyboardInterrupt(), "no report.html, stopped; `iaa report"),
    ],
)
def test_a_failing_report_costs_a_line_and_nothing_else(fault, message, run, monkeypatch, capsys):
    from iaa.cli import cmd_train

    def fail(*_, **__):
        raise fault

    monkeypatch.setattr("iaa.report.page.write_report", fail)
    cmd_train._report(Run(run), quiet=False)
    (line,) = capsys.readouterr().out.splitlines()
    assert message in line
    cmd_train._report(Run(run), quiet=True)
    assert capsys.readouterr().out == ""


def test_a_missing_extra_is_named_before_any_work(run, monkeypatch, capsys):
    def without(module, *, extra):
        if module == "jinja2":
            raise ImportError(f"jinja2 is not installed: pip install 'iaa[{extra}]'")
        return need(module, extra=extra)

    monkeypatch.setattr("iaa.report.page.need", without)
    assert main(["report", str(run)]) == 2
    assert "pip install 'iaa[report]'" in capsys.readouterr().err


def test_synthetics_are_decoded_and_shown(vectors, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(vectors, run / "embeddings.safetensors")
    arguments = ["--side", "8", "--epochs", "2", "--shown", "3", "--copies", "2"]
    assert main(["analyze", "decode", str(run), "--figure", str(tmp_path / "decoded.png"), *arguments]) == 0
    out, err = capsys.readouterr()
    assert out.split() == [str(run / "decoded.safetensors"), str(tmp_path / "decoded.png")]
    assert "43 images" in err or "44 images" in err  # nine tenths of 48
    assert main(["report", str(run)]) == 0
    text = (run / "report.html").read_text()
    assert "Decoded to pixels" in text
    assert text.count("synthetic 2") >= 3


def test_decoding_needs_images(tmp_path, vectors):
    from iaa.cli.cmd_analyze_decode import command

    bare = Embeddings.load(vectors)
    Embeddings(bare.z, bare.labels).save(tmp_path / "bare.safetensors")
    with pytest.raises(FileNotFoundError, match="none of the images can be read, such as '0': --images"):
        command(tmp_path / "bare.safetensors")
    with pytest.raises(ValueError, match="--side must be a multiple of 4, got 10"):
        command(vectors, side=10)


def test_embeddings_next_to_those_of_a_run_are_shown_as_well(run, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(run, folder)
    shutil.copy(folder / "embeddings.safetensors", folder / "embeddings-old.safetensors")
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0
    assert "Scores on old" in (tmp_path / "page.html").read_text()
