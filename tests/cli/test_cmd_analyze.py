import csv
import json
from pathlib import Path

import pytest
import torch

import iaa
import tiny_runs
from iaa.cli import main
from iaa.config import Network
from iaa.train import train


@pytest.fixture
def vectors(tmp_path):
    """Ten training and five test classes of vectors."""
    torch.manual_seed(0)
    labels = torch.arange(15).repeat_interleave(8)
    z = torch.randn(15, 6)[labels] * 2 + (0.2 + torch.rand(15, 6))[labels] * torch.randn(120, 6)
    split = ["train" if label < 10 else "test" for label in labels]
    ids = [f"images/{row}.png" for row in range(120)]
    names = {label: f"class [{label}]" for label in range(15)}
    iaa.Embeddings(z, labels, ids, names, split).save(tmp_path / "vectors.safetensors")
    return tmp_path / "vectors.safetensors"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    return train(
        tiny_runs.tiny(tiny_runs.images(home / "images"), home, network=Network(dim=5)), quiet=True
    ).path


def read(folder, name):
    with open(folder / name) as file:
        return list(csv.DictReader(file))


def test_correlation_of_a_file(vectors, tmp_path, capsys):
    arguments = ["analyze", "correlation", str(vectors), "--draws", "19", "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "train classes: 80 samples of 10 classes, 6 dimensions" in out
    assert "assigned to classes at random" in out
    result = json.loads((tmp_path / "out/correlation.json").read_text())
    data = iaa.Embeddings.load(vectors)
    rows = data.where(split="train")
    stats = iaa.estimate(data.z[rows], data.labels[rows], num_classes=10)
    assert result["coefficients"][1]["value"] == pytest.approx(iaa.spearman(stats))
    table = read(tmp_path / "out", "correlation.csv")
    assert float(table[0]["p = 2"]) == pytest.approx(iaa.spearman(stats))
    assert len(read(tmp_path / "out", "curves.csv")) == 4 * 9
    page = (tmp_path / "out/correlation.md").read_text()
    assert f"| squared means, variances | {float(table[0]['p = 1']):.3f} |" in page
    assert "- Spearman coefficient" in page


def test_the_papers_numbers_are_listed_next_to_those_of_its_datasets(vectors, tmp_path, capsys):
    data = iaa.Embeddings.load(vectors)
    iaa.Embeddings(data.z, data.labels, split=data.split, meta={"data": "cars"}).save(tmp_path / "cars.npz")
    assert main(["analyze", "correlation", str(tmp_path / "cars.npz"), "--draws", "9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:6]] for line in lines]
    assert ["paper, Table I", "0.910", "0.850", "0.780", "0.740"] in cells
    printed = [row[1:] for row in cells if row[:1] == ["paper, Table VIII"]]
    assert printed[0] == ["0.700", "0.720", "0.710", "-"]
    assert len(printed) == 4


def test_the_split_chooses_rows(vectors, capsys):
    for split, classes in (("train", 10), ("test", 5), ("all", 15)):
        assert main(["analyze", "variety", str(vectors), "--split", split, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["labels"]) == classes
    assert main(["analyze", "variety", str(vectors), "--split", "val"]) == 2
    assert "no rows of split 'val': it has test, train" in capsys.readouterr().err


def test_variety_and_weights_print_tables(vectors, capsys):
    assert main(["analyze", "variety", str(vectors)]) == 0
    assert "class [3]" in capsys.readouterr().out
    assert main(["analyze", "weights", "--falloffs", "0.1", "1", "--most", "3"]) == 0
    out = capsys.readouterr().out
    assert "β = 0.1" in out
    assert "1.000" in out


def test_similarity_of_several(vectors, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["analyze", "similarity", str(vectors), str(vectors), "--bins", "10", "--out", str(out)]) == 0
    assert "d-prime" in capsys.readouterr().out
    rows = read(out, "similarity.csv")
    assert len(rows) == 2
    assert int(rows[0]["positive pairs"]) == 5 * 28  # the test classes
    assert len(read(out, "histograms.csv")) == 20


def test_atlas_of_a_file(vectors, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["analyze", "atlas", str(vectors), "--out", str(out), "--rows", "3"]) == 0
    printed = capsys.readouterr().out
    assert "and 7 more rows" in printed
    rows = read(out, "atlas.csv")
    assert len(rows) == 10
    assert {row["class"] for row in rows} == {f"class [{label}]" for label in range(10)}
    assert "images/" in rows[0]["extremes"]
    assert (out / "suspects.csv").is_file()
    assert len(json.loads((out / "atlas.json").read_text())["classes"]) == 10


def test_a_run_is_analysed_by_its_training_classes_embedded_once(run, capsys, monkeypatch):
    (run / "training.safetensors").unlink(missing_ok=True)
    assert main(["analyze", "atlas", str(run), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["classes"]) == 8
    assert result["options"]["neighbors"] == 3  # the run's own
    kept = iaa.Embeddings.load(run / "training.safetensors")
    assert (len(kept), set(kept.split), kept.z.shape[1]) == (48, {"train"}, 5)
    assert all((Path(kept.meta["root"]) / one).is_file() for one in kept.ids)

    def refuse(*_args, **_kwargs):
        raise AssertionError("embedded a second time")

    monkeypatch.setattr("iaa.runs.embed_batches", refuse)
    assert main(["analyze", "variety", str(run), "--json"]) == 0


def test_training_embeddings_are_those_of_the_trained_network(run):
    opened = iaa.Run(run)
    data, source, network = opened.embeddings("train"), opened.data, opened.network()
    images, labels, _ = next(iter(source.in_order(source.dataset.part("train"), network.preprocessing)))
    with torch.no_grad():
        assert torch.allclose(network(images), data.z[: len(labels)], atol=1e-5)
    test = iaa.Embeddings.load(run / "embeddings.safetensors")
    assert not set(test.ids) & set(data.ids)
    assert opened.config.network.dim == 5


def test_mining_of_a_run(run, tmp_path, capsys):
    assert main(["analyze", "mining", str(run), "--out", str(tmp_path)]) == 0
    assert "synthetic negatives" in capsys.readouterr().out
    rows = read(tmp_path, "mining.csv")
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert all(float(row["negatives a step"]) > 0 for row in rows)
    assert all(0 < float(row["synthetic negatives"]) < 1 for row in rows)


def test_cost_of_a_run(run, capfd):
    before = sorted(path.name for path in run.iterdir())
    assert main(["analyze", "cost", str(run), "--copies", "0", "2", "--rounds", "2", "--json"]) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    result = json.loads(printed.out)
    assert [one["copies"] for one in result["steps"]] == [0, 2]
    assert result["steps"][1]["mebibytes"] >= result["steps"][0]["mebibytes"] > 1  # the network's own peak
    assert any("reading images is not counted" in arguments for arguments in result["what"])
    assert sorted(path.name for path in run.iterdir()) == before
    assert main(["analyze", "cost", str(run), "--copies", "0", "1", "--rounds", "1"]) == 0
    assert "more time" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["correlation", "nowhere.safetensors"], "no such run or embeddings file: nowhere.safetensors"),
        (["mining", "."], "no log.jsonl in ."),
        (["similarity"], "name at least one file or run"),
        (["cost", "nowhere"], "no such run or embeddings file: nowhere"),
        (["weights", "--most", "0"], "most must be at least 1, got 0"),
        (["mining", ""], "an argument is empty: is a shell variable not set?"),
        (["decode", "nowhere", "--figure", "a.gif"], "--figure must end in .png, got a.gif"),
    ],
)
def test_errors_are_one_line(given, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["analyze", *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_figure_of_unknown_kind_is_refused_before_the_work(vectors, capsys, monkeypatch):
    monkeypatch.setattr("iaa.cli.cmd_analyze.read_input", lambda *_: pytest.fail("the work has begun"))
    assert main(["analyze", "correlation", str(vectors), "--figure", "curves.gif"]) == 2
    error = capsys.readouterr().err
    assert "the figure's ending must be one of '.svg', '.png'" in error
    assert error.count("\n") == 1


def test_an_unfinished_run_says_how_to_finish_it(run, tmp_path, capsys):
    (tmp_path / "config.json").write_text((run / "config.json").read_text())
    assert main(["analyze", "atlas", str(tmp_path)]) == 2
    assert f"continue it with `iaa train --resume {tmp_path}`" in capsys.readouterr().err


def test_help_teaches(capsys):
    with pytest.raises(SystemExit):
        main(["analyze", "--help"])
    out = capsys.readouterr().out
    for name in ("correlation", "variety", "weights", "similarity", "mining", "cost", "atlas"):
        assert name in out


def test_a_run_has_no_rows_of_all_classes(run, capsys):
    assert main(["analyze", "variety", str(run), "--split", "all"]) == 2
    assert (
        "stores training and test classes separately: give --split train or test" in capsys.readouterr().err
    )
