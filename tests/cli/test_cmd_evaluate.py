import json
from dataclasses import replace

import pytest
import torch

from iaa.cli import main
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.metrics import score


def make(noise, *, size=20, seed=0, **options):
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(size).repeat(5)
    z = torch.randn(size, 12, generator=g)[labels] + noise * torch.randn(5 * size, 12, generator=g)
    ids = [f"{i}.jpg" for i in range(5 * size)]
    return Embeddings(z, labels, ids, {i: f"bird {i}" for i in range(size)}, **options)


def run(capsys, *words):
    code = main(["evaluate", *map(str, words)])
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.fixture
def good(tmp_path):
    make(0.5).save(tmp_path / "good.npz")
    return tmp_path / "good.npz"


@pytest.fixture
def bad(tmp_path):
    make(1.5).save(tmp_path / "bad.safetensors")
    return tmp_path / "bad.safetensors"


def test_table_and_json_say_what_score_says(capsys, good):
    code, out, err = run(capsys, good)
    assert (code, err) == (0, "")
    data = Embeddings.load(good)
    expected = score(data.z, data.labels)
    for name, value in expected.items():
        assert name in out
        assert f"{value:.2f}" in out
    found = json.loads(run(capsys, good, "--json")[1])["files"][0]
    assert {name: one["value"] for name, one in found["metrics"].items()} == pytest.approx(expected)
    low, high = found["metrics"]["MAP@R"]["over_classes"]
    assert low <= expected["MAP@R"] <= high


def test_an_approximate_index_states_its_recall_and_its_error(capsys, good):
    shown = run(capsys, good, "--index", "ivf", "--ks", 1)[1]
    assert "% of the true ten nearest" in shown
    found = json.loads(run(capsys, good, "--index", "ivf", "--ks", 1, "--json")[1])["files"][0]
    off = found["index_error"]["metrics"]["R@1"]
    exact = json.loads(run(capsys, good, "--ks", 1, "--json")[1])["files"][0]
    assert found["index_error"]["queries"] == found["queries"] == 100
    assert off["mean"] == pytest.approx(found["metrics"]["R@1"]["value"] - exact["metrics"]["R@1"]["value"])
    assert f"on 100 sampled queries (95 %): R@1 {off['mean']:+.2f} [{off['low']:+.2f}, " in shown
    for kind in ("flat", "exact"):
        assert "true ten nearest" not in run(capsys, good, "--index", kind)[1]
    assert "index_error" not in exact


def test_against_is_paired_and_names_its_test(capsys, good, bad):
    code, out, _ = run(capsys, good, "--against", bad)
    assert code == 0
    assert "sign-flip permutation test" in out
    found = json.loads(run(capsys, good, "--against", bad, "--json")[1])["against"]["metrics"]["MAP@R"]
    assert found["mean"] > 5
    assert found["p_classes"] < 0.01


def test_against_warns_when_search_got_worse(capsys, good, bad):
    _, out, _ = run(capsys, bad, "--against", good)
    assert f"Warning: {bad.parent.name}/bad.safetensors made search worse: R@1" in out
    assert f"for '{good.parent.name}/good.npz'. Keep using that, or train more gently" in out
    assert "Warning" not in run(capsys, good, "--against", bad)[1]
    assert "Warning" not in run(capsys, good, "--against", good)[1]


def test_against_aligns_rows_by_their_ids(capsys, good, tmp_path):
    data = Embeddings.load(good)
    data.rows(torch.randperm(100, generator=torch.Generator().manual_seed(0))).save(tmp_path / "mixed.npz")
    found = json.loads(run(capsys, good, "--against", tmp_path / "mixed.npz", "--json")[1])
    assert all(one["mean"] == pytest.approx(0) for one in found["against"]["metrics"].values())
    data.rows(torch.arange(90)).save(tmp_path / "fewer.npz")
    code, _, err = run(capsys, good, "--against", tmp_path / "fewer.npz")
    assert code == 2
    assert "the same queries" in err


def test_worst_classes_come_with_examples(capsys, bad):
    worst = json.loads(run(capsys, bad, "--per-class", "--json")[1])["files"][0]["worst_classes"]
    means = [one["MAP@R"] for one in worst]
    assert means == sorted(means)
    assert all(one["example"] != one["nearest"] for one in worst)
    assert worst[0]["class"] in run(capsys, bad, "--per-class")[1]


def test_sizes_of_a_run_in_one_table_in_their_order(capsys, tmp_path):
    for name, size in (("small", 6), ("medium", 9), ("large", 12)):
        make(1.0, size=size).save(tmp_path / f"embeddings-{name}.safetensors")
    _, out, _ = run(capsys, tmp_path, "--ks", 1, 5)
    assert out.index("small") < out.index("medium") < out.index("large")
    _, out, _ = run(capsys, tmp_path, "--ks", 1, 5, "--gallery-draws", 3)
    assert "spread over 3 galleries" in out
    first, second = (
        json.loads(run(capsys, tmp_path, "--gallery-draws", 3, "--ks", 1, "--json", *more)[1])["files"]
        for more in ((), ("--seed", 1))
    )
    assert first == json.loads(run(capsys, tmp_path, "--gallery-draws", 3, "--ks", 1, "--json")[1])["files"]
    assert first != second
    assert first[0]["metrics"]["R@1"]["value"] == pytest.approx(first[0]["metrics"]["MAP@R"]["value"])


def test_roles_in_the_file_make_queries_and_gallery(capsys, tmp_path):
    data = make(0.7, role=["query"] * 40 + ["gallery"] * 60)
    data.save(tmp_path / "x.parquet")
    found = json.loads(run(capsys, tmp_path / "x.parquet", "--ks", 1, "--json")[1])["files"][0]
    expected = score(data.z[:40], data.labels[:40], gallery=(data.z[40:], data.labels[40:]), ks=(1,))
    assert (found["queries"], found["gallery"]) == (40, 60)
    assert {name: one["value"] for name, one in found["metrics"].items()} == pytest.approx(expected)


def test_split_and_queries_without_a_positive(capsys, tmp_path):
    labels = torch.cat([torch.arange(10) // 2, torch.tensor([77])])
    z = torch.randn(11, 3, generator=torch.Generator().manual_seed(0))
    Embeddings(z, labels, split=["test"] * 8 + ["val"] * 3).save(tmp_path / "x.npz")
    assert json.loads(run(capsys, tmp_path / "x.npz", "--ks", 1, "--json")[1])["files"][0]["queries"] == 8
    _, out, _ = run(capsys, tmp_path / "x.npz", "--ks", 1, "--split", "all")
    assert "1 of 11 queries have no positive" in out
    code, _, err = run(capsys, tmp_path / "x.npz", "--split", "train")
    assert code == 2
    assert "no rows of split 'train': the file has test, val" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.npz"], "no such run or embeddings file: nowhere.npz"),
        (["{tmp}"], "no embeddings*.safetensors in"),
        (["{good}", "--ks", "1000"], "good.npz: ks must lie in [1, 99]"),
        (["{good}", "--gallery-draws", "2", "--per-class"], "leave --against, --per-class and --index out"),
        (["{good}", "{good}", "--against", "{good}"], "compares one file with one other, got 2 and 1"),
        ([], "name at least one embeddings file"),
    ],
)
def test_errors_are_one_line(capsys, good, tmp_path, words, message):
    empty = tmp_path / "empty"
    empty.mkdir()
    code, _, err = run(capsys, *(word.format(good=good, tmp=empty) for word in words))
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_names_are_not_read_as_markup(tmp_path, capsys):
    names = {0: "[/]", 1: "[bold]b[/bold]"}
    data = Embeddings(torch.randn(8, 4), torch.arange(8) % 2, [f"[x]{row}.png" for row in range(8)], names)
    data.save(tmp_path / "odd.safetensors")
    assert main(["evaluate", str(tmp_path / "odd.safetensors"), "--per-class", "--ks", "1"]) == 0
    shown = capsys.readouterr().out
    assert "[/]" in shown
    assert "[bold]b[/bold]" in shown


def test_runs_are_distinguished_by_their_folders(capsys, good, tmp_path):
    for name in ("first", "second"):
        Embeddings.load(good).save(tmp_path / name / "embeddings.safetensors")
    assert main(["evaluate", str(tmp_path / "first"), str(tmp_path / "second")]) == 0
    shown = capsys.readouterr().out
    assert "first" in shown
    assert "second" in shown


def test_names_may_start_from_different_folders(capsys, tmp_path):
    data = make(0.5)
    named = [f"c/{row}.png" for row in range(len(data))]
    replace(data, ids=named, meta={"root": "/photos"}).save(tmp_path / "new.npz")
    replace(data, ids=[f"/photos/{name}" for name in named]).save(tmp_path / "old.npz")
    code, out, _ = run(capsys, tmp_path / "new.npz", "--against", tmp_path / "old.npz")
    assert code == 0
    assert "+0.00" in out


def test_refinements_are_options_and_refused_where_they_make_no_sense(capsys, bad):
    plain = json.loads(run(capsys, bad, "--json")[1])["files"][0]["metrics"]["MAP@R"]["value"]
    for words in (["--expand", "2"], ["--rerank"]):
        found = json.loads(run(capsys, bad, *words, "--json")[1])
        assert found["files"][0]["metrics"]["MAP@R"]["value"] > plain
        assert found["refinement"][words[0].removeprefix("--")]
    for words, message in (
        (["--rerank", "--per-class"], "leave --gallery-draws and --per-class out"),
        (["--augment-gallery", "2"], "queries apart from the gallery"),
        (["--rerank", "--expand", "2"], "choose one of them"),
        (["--expand", "-1"], "expand must be at least 0"),
    ):
        code, _, err = run(capsys, bad, *words)
        assert code == 2
        assert message in err
        assert len(err.strip().splitlines()) == 1
