import inspect
import json
import runpy
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tiny_datasets
from iaa.retrieval.classify import Identifier
from iaa.retrieval.embeddings import Embeddings

HERE = Path(__file__).parents[1] / "benchmarks"


def test_the_images_benchmark_runs(tmp_path, capsys):
    script = runpy.run_path(str(HERE / "images.py"))
    settings = script["Settings"](
        root=tiny_datasets.cub(tmp_path),
        out=tmp_path / "out.json",
        images=6,
        repeats=2,
        epochs=2,
        workers=0,
    )
    script["main"](settings)
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["ratio_later_epochs"] > 0
    assert len(report["images_per_second"]["iaa"]) == 2
    assert report["versions"]["torch"]


def test_the_committed_result_meets_its_aim():
    report = json.loads((HERE / "images.json").read_text())
    assert report["ratio_first_epoch"] >= 0.9
    assert report["ratio_later_epochs"] >= 1.5
    assert not report["commit"].endswith("dirty")


@pytest.mark.parametrize("more", [[], ["--million"]])
def test_the_retrieval_benchmark_runs_and_writes_its_table(tmp_path, monkeypatch, more):
    pytest.importorskip("faiss", reason="the benchmark asks faiss as well")
    monkeypatch.syspath_prepend(str(HERE))
    script = runpy.run_path(str(HERE / "retrieval.py"))
    monkeypatch.setattr("sys.argv", ["retrieval.py", "--quick", *more, "--out", str(tmp_path / "x.json")])
    monkeypatch.setitem(script["main"].__globals__, "million", partial(script["million"], asked=50))
    script["main"]()
    report, table = json.loads((tmp_path / "x.json").read_text()), (tmp_path / "x.md").read_text()
    if more:
        assert (
            report["million"]["ivf"]["error"]["R@1"]["low"] < report["million"]["ivf"]["error"]["R@1"]["high"]
        )
        assert "20,000 x 16, every vector asking all others: exact in" in table
    else:
        assert [len(row["seconds"]["iaa"]) for row in report["sizes"]] == [2, 2]
        ratio = report["sizes"][0]["times_faster"]
        assert 0 < ratio["min"] <= ratio["median"] <= ratio["max"]
        assert "| 500 x 16 | 100 | 100 |" in table


def test_the_search_benchmark_runs_and_writes_its_table(tmp_path, monkeypatch):
    pytest.importorskip("faiss", reason="the benchmark asks faiss as well")
    monkeypatch.syspath_prepend(str(HERE))
    script = runpy.run_path(str(HERE / "search.py"))
    monkeypatch.setattr("sys.argv", ["search.py", "--quick", "--out", str(tmp_path / "x.json")])
    threads = torch.get_num_threads()
    try:
        script["main"]()
    finally:
        torch.set_num_threads(threads)
    report = json.loads((tmp_path / "x.json").read_text())
    assert [row["kind"] for row in report["sizes"]] == ["exact", "hnsw", "ivf"]
    assert report["sizes"][0]["same_answers"] > 0.99
    assert "| exact | 2,000 x 8 |" in (tmp_path / "x.md").read_text()


def test_the_identify_benchmark_runs_and_writes_its_table(tmp_path, monkeypatch):
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(24).repeat_interleave(8)
    z = torch.randn(24, 6, generator=g)[labels] + 0.3 * torch.randn(192, 6, generator=g)
    split = ["train" if label < 12 else "test" for label in labels.tolist()]
    Embeddings(z, labels, split=split).save(tmp_path / "z.safetensors")
    script = runpy.run_path(str(HERE / "identify.py"))
    for stage in ("tune", "test"):
        words = ["identify.py", str(tmp_path / "z.safetensors"), stage, "--draws", "2"]
        monkeypatch.setattr("sys.argv", [*words, "--out", str(tmp_path / "x.json")])
        script["main"]()
    report = json.loads((tmp_path / "x.json").read_text())
    assert set(report["test"]["shots"]) == {"1", "3", "5"}
    found = report["test"]["shots"]["5"]["nearest mean, cosine"]
    assert 60 < found["accuracy"]["mean"] <= 100
    assert set(report["tune"]["chosen"]) == {"shrink", "floor", "neighbors"}
    assert "AUROC of unknown" in (tmp_path / "x.md").read_text()


def test_the_default_is_what_the_committed_measurement_chose():
    report = json.loads((HERE / "identify.json").read_text())
    chosen = report["tune"]["chosen"]
    defaults = inspect.signature(Identifier.__init__).parameters
    assert {name: defaults[name].default for name in chosen} == chosen
    by_accuracy = {
        name: sum(report["test"]["shots"][shots][name]["accuracy"]["mean"] for shots in ("1", "3", "5"))
        for name in report["test"]["cases"]
    }
    assert defaults["how"].default == "gaussian"
    assert (
        by_accuracy["Gaussians, full, corrected by all classes (default)"]
        > by_accuracy["nearest mean, cosine"]
    )
    assert not report["surroundings"]["commit"].endswith("dirty")


@pytest.mark.parametrize(("dim", "least", "most"), [(2, 0.5, 1.0), (512, 0.0, 0.1)])
def test_independent_noise_makes_hard_negatives_in_few_dimensions_only(dim, least, most):
    g = torch.Generator().manual_seed(1)  # 0 draws the noise, which must not equal the means
    labels = torch.arange(40).repeat_interleave(8)
    z = 1.5 + torch.randn(40, dim, generator=g)[labels] + torch.randn(320, dim, generator=g)
    found = runpy.run_path(str(HERE / "hardness.py"))["hardness"](z, labels, "diagonal", 0.8)
    assert least <= found["nearest negative is synthetic"] <= most
    assert (found["nearest synthetic negative"] > found["nearest negative"]) == (dim == 512)


def test_the_ladder_climbs_and_writes_its_table(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    script = runpy.run_path(str(HERE / "ladder.py"))
    monkeypatch.setitem(script["train_head"].__globals__, "STEPS", 4)
    torch.manual_seed(0)
    labels = torch.arange(240) % 24
    z = (torch.randn(24, 16)[labels] + torch.randn(240, 16) * torch.linspace(0.1, 3, 16)).relu()
    known = labels < 12
    data = script["Features"](z[known], labels[known], z[~known], labels[~known])
    found = script["climb"](data, 3, seeds=2)
    assert {len(rows) for rows in found["rungs"].values()} == {2}
    assert list(found["rungs"]) == ["frozen", "square root", "whitening", "head", "head + IAA"]
    assert found["recipes"]["head + IAA"]["strength"] > 0
    around = {"commit": "c0ffee", "machine": {"cpu": "a CPU"}, "versions": {}}
    table = script["page"]({"ladders": {"cub/lite0/3": found}, **around})
    assert "| cub, 3 per class | lite0 | " in table
    assert "commit c0ffee" in table


def test_what_pays_is_measured_on_held_out_classes(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    script = runpy.run_path(str(HERE / "held_out.py"))
    torch.manual_seed(0)
    labels = torch.arange(480) % 24
    z = torch.randn(24, 16)[labels] + torch.randn(480, 16) * torch.linspace(0.1, 3, 16)
    known = labels < 12
    parts = z[known], labels[known], z[~known], labels[~known] - 12
    rows = dict(script["closed_form"](*parts)) | dict(script["corrected"](*parts))
    assert rows["power 1.0, shrink 0.5"]["MAP@R"] > rows["frozen"]["MAP@R"]
    assert rows["pooled from corrected covariances"]["R@1"] > 0
    extras = dict(script["extras"](z, z, labels))
    assert extras["not re-ranked"]["R@1"] == pytest.approx(extras["whitened"]["R@1"])


def test_a_ratio_comes_with_its_spread():
    ratio = runpy.run_path(str(HERE / "measurement.py"))["ratio"]
    assert ratio([2.0, 6.0, 12.0], [1.0, 2.0, 3.0]) == {"min": 2.0, "median": 3.0, "max": 4.0}


def test_the_loops_by_hand_see_all_photos(tmp_path):
    script = runpy.run_path(str(HERE / "photos_by_hand.py"))
    script["make_photos"](tmp_path / "photos", script["CLASSES"], script["PER_CLASS"])
    options = str(tmp_path / "photos"), "tf_efficientnet_lite0", "32"
    out = tmp_path / "z.safetensors"
    assert script["embed"](*options, str(out))[0] > 0
    assert load_file(out)["z"].shape == (script["CLASSES"] * script["PER_CLASS"], 1280)
    assert len(script["train"](*options, "2")) == 2


def test_the_unknown_benchmark_compares_printed_and_measured_rates(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    script = runpy.run_path(str(HERE / "unknown.py"))
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(200).repeat_interleave(6)
    z = torch.randn(200, 12, generator=g)[labels] + 0.5 * torch.randn(1200, 12, generator=g)
    data = Embeddings(z, labels, [str(i) for i in range(1200)], meta={"data": "emoji"})
    rows = script["measure"](data, "emoji", 2, [15, None])
    assert [row["how"] for row in rows] == ["gaussian", "mean", "image"] * 2
    assert all(draw["unknown_caught"]["inside"] for row in rows for draw in row["draws"])
    page = script["page"]({"data": {"emoji": rows}, "commit": "c"})
    assert "| emoji | frozen | all | mean |" in page
    assert "2 of 2" in page
