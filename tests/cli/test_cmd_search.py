import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch

import iaa
import tiny_datasets
import tiny_runs
from iaa.cli import main
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.index import Index
from iaa.retrieval.query_expansion import expand
from iaa.train import train


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    base = tmp_path_factory.mktemp("search")
    tiny_runs.images(base / "data", classes=10, each=5, alike=True)
    train(tiny_runs.tiny(base / "data", base / "runs", epochs=1), quiet=True)
    return base


def search(capsys, home: Path, *arguments: object) -> tuple[int, str, str]:
    code = main(["search", str(home / "runs" / "run-1"), *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_table_of_the_most_similar_images_without_the_query_itself(home, capsys):
    query = home / "data" / "c3" / "2.png"
    code, out, _ = search(capsys, home, query, "--top", "3")
    assert code == 0
    model = iaa.load(home / "runs" / "run-1")
    gallery = iaa.Gallery.open(model)
    hits = [hit for hit in gallery.search(model.embed([query]), top=4)[0] if hit.id != str(query)]
    lines = [line for line in out.splitlines() if line.startswith("│")]
    for rank, (hit, line) in enumerate(zip(hits, lines, strict=True), start=1):
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        place = Path(hit.id).relative_to(home / "data").as_posix()
        assert cells == [str(rank), f"{hit.similarity:.3f}", hit.label, place]
    assert f"paths below {home / 'data'}" in out
    assert "50 images of 10 classes, cosine similarity" in out


def test_freed_memory_is_kept_while_a_gallery_is_embedded(home, capsys, monkeypatch):
    kept = []
    monkeypatch.setattr("iaa.allocator.keep_freed_memory", lambda: kept.append(True))
    search(capsys, home, home / "data" / "c3" / "2.png")
    assert kept == [True]


def test_json_for_a_folder_of_queries_with_classes(home, capsys, tmp_path):
    outside = tmp_path / "new"
    for number in range(3):
        tiny_datasets.image(outside / f"{number}.png", seed=900 + number, size=(20, 20))
    code, out, _ = search(capsys, home, outside, home / "data" / "c1" / "0.png", "--json", "--classes")
    assert code == 0
    result = json.loads(out)
    assert [Path(entry["query"]).name for entry in result["queries"]] == ["0.png", "1.png", "2.png", "0.png"]
    assert [entry["in_gallery"] for entry in result["queries"]] == [False, False, False, True]
    assert [len(entry["hits"]) for entry in result["queries"]] == [5] * 4
    first = result["queries"][0]
    assert first["hits"][0]["similarity"] >= first["hits"][1]["similarity"]
    assert len(first["classes"]) == 3
    assert first["known"] is (first["classes"][0]["score"] >= result["classifier"]["threshold"]["score"])
    expected = "10 classes of the gallery held out in turns, trained on ones among them"
    assert result["classifier"]["learned_from"] == expected
    assert result["gallery"]["images"] == 50


def test_a_copy_of_an_image_in_the_gallery_is_reported(home, capsys, tmp_path):
    shutil.copy(home / "data" / "c3" / "2.png", tmp_path / "copy.png")
    _, out, _ = search(capsys, home, tmp_path / "copy.png", "--classes")
    assert "the gallery holds the same image as c3" in out
    _, out, _ = search(capsys, home, home / "data" / "c3" / "2.png", "--classes")
    assert "it is in the gallery itself" in out


def test_an_unreadable_query_is_named_and_the_exit_code_is_1(home, capsys, tmp_path):
    whole = (home / "data" / "c0" / "0.png").read_bytes()
    (tmp_path / "good.png").write_bytes(whole)
    (tmp_path / "bad.png").write_bytes(whole[:150])
    code, out, err = search(capsys, home, tmp_path, "--json")
    assert code == 1
    result = json.loads(out)
    assert [Path(entry["query"]).name for entry in result["queries"]] == ["good.png"]
    assert [Path(entry["query"]).name for entry in result["unreadable"]] == ["bad.png"]
    assert f"cannot read {tmp_path / 'bad.png'}: " in err
    (tmp_path / "good.png").unlink()
    assert search(capsys, home, tmp_path)[0] == 1
    query = home / "data" / "c0" / "1.png"
    code, out, err = search(capsys, home, tmp_path / "nothing.png", query, "--json")
    assert code == 1
    assert [entry["query"] for entry in json.loads(out)["queries"]] == [str(query)]
    assert err.splitlines() == [
        f"cannot read {tmp_path / 'nothing.png'}: there is no image, folder or embeddings file of this name"
    ]


def test_control_characters_in_names_do_not_reach_the_terminal(home, capsys, tmp_path):
    own = tmp_path / "own"
    for number in range(2):
        tiny_datasets.image(own / "evil\x1b[2J" / f"{number}\x07.png", seed=number, size=(20, 20))
    (own / "bad\x1b.png").write_bytes(b"nothing")
    arguments = [own / "evil\x1b[2J", tmp_path / "no\x1bthing.png", "--gallery", f"folder:{own}", "--classes"]
    code, out, err = search(capsys, home, *arguments)
    assert code == 1
    assert all(character.isprintable() or character == "\n" for character in out + err)
    assert r"evil\x1b[2J" in out
    assert r"bad\x1b.png" in err
    assert r"no\x1bthing.png" in err


def test_add_and_remove_change_the_gallery(home, capsys, tmp_path):
    tiny_datasets.image(tmp_path / "extra" / "newt" / "0.png", seed=5, size=(20, 20))
    gallery = ["--gallery", f"folder:{home / 'data'}"]
    code, out, _ = search(capsys, home, *gallery, "--add", tmp_path / "extra")
    assert (code, "51 images of 11 classes" in out) == (0, True)
    code, out, _ = search(
        capsys, home, tmp_path / "extra", *gallery, "--remove", "c4", "--top", "50", "--json"
    )
    result = json.loads(out)["queries"][0]["hits"]
    assert len(result) == 45
    assert "c4" not in {hit["label"] for hit in result}
    code, _, err = search(capsys, home, *gallery, "--remove", "c44")
    assert code == 2
    assert "no class, no image and no added folder 'c44'" in err


def test_approximate_indexes_print_their_recall(home, capsys, tmp_path):
    code, out, _ = search(capsys, home, home / "data" / "c0", "--index", "hnsw")
    assert code == 0
    recall = re.search(r"hnsw finds ([\d.]+) % of the true ten nearest", out)
    assert recall
    assert float(recall[1]) > 99  # of neighbours equally far, it may find another
    shutil.copy(home / "data" / "c0" / "0.png", tmp_path / "one.png")
    for kind in ("hnsw", "ivf"):
        arguments = [home / "data" / "c0" / "1.png", "--gallery", f"folder:{tmp_path}", "--index", kind]
        code, out, _ = search(capsys, home, *arguments)
        assert code == 0
        assert "one.png" in out
        assert "1 image of 1 class, cosine similarity" in out


def test_embeddings_files_can_be_queries_and_galleries(home, capsys, tmp_path):
    run = home / "runs" / "run-1"
    file = run / "embeddings.safetensors"
    code, out, _ = search(capsys, home, file, "--gallery", file, "--json", "--top", "2")
    assert code == 0
    data = Embeddings.load(file)
    result = json.loads(out)["queries"]
    assert [entry["query"] for entry in result] == [
        os.path.join(data.meta["root"], name) for name in data.ids
    ]
    assert all(entry["in_gallery"] for entry in result)
    out = tmp_path / "all.safetensors"
    arguments = ["embed", f"folder:{home / 'data'}", "--out", str(out), "--model", str(run), "--split", "all"]
    assert main([*arguments, "--workers", "0"]) == 0
    capsys.readouterr()
    made = Embeddings.load(out)
    model = iaa.load(run)
    torch.testing.assert_close(made.z, model.embed([home / "data" / name for name in made.ids]))
    assert made.meta["model"] == "convnet"
    assert made.meta["weights_sha256"] == model.weights
    assert (
        main(["search", str(out), str(home / "data" / "c0" / "0.png"), "--json"]) == 0
    )  # it knows its network
    hits = json.loads(capsys.readouterr().out)["queries"][0]["hits"]
    assert len(hits) == 5


def test_embedding_with_a_run_takes_everything_from_the_run(home, capsys, tmp_path):
    run = str(home / "runs" / "run-1")
    arguments = ["embed", f"folder:{home / 'data'}", "--out", str(tmp_path / "x.safetensors"), "--model", run]
    assert main([*arguments, "--size", "32"]) == 2
    assert "--size is that of the run" in capsys.readouterr().err


def test_errors_are_one_line(home, capsys, tmp_path):
    (tmp_path / "notes.txt").write_text("no image")
    for arguments, text in (
        ([], "name an image to search for"),
        ([home / "data", "--top", "0"], "--top must be 1 or more, got 0"),
        ([home / "data", "--gallery", "x"], "the gallery must be one of 'folder:DIR'"),
        ([home / "data", "--gallery", f"folder:{tmp_path / 'no'}"], "does not exist"),
        ([""], "an argument is empty"),
        ([home / "data", "--gallery", "folder:"], "'folder:' names no path"),
        (["--add", "folder:"], "'folder:' names no path"),
        (["--remove", "folder:"], "what is removed must be a class or a path, got 'folder:'"),
        (["--add", tmp_path / "notes.txt"], f"nothing of {tmp_path / 'notes.txt'} can be read: "),
    ):
        code, out, err = search(capsys, home, *arguments)
        assert code == 2
        assert out == ""
        assert text in err
        assert len(err.splitlines()) == 1
    assert main(["search", str(tmp_path), "x.jpg"]) == 2
    assert "is not a run directory" in capsys.readouterr().err


def test_the_page_is_self_contained_and_escapes_names(home, capsys, tmp_path):
    evil = '<img src=x onerror=alert("1")>'
    own = tmp_path / "own"
    for number in range(3):
        tiny_datasets.image(own / evil / f"{number}.png", seed=number, size=(20, 20))
    tiny_datasets.image(own / "plain" / "0.png", seed=9, size=(20, 20))
    page = tmp_path / "page.html"
    arguments = [own / "plain", "--gallery", f"folder:{own}", "--html", page, "--classes"]
    code, _, err = search(capsys, home, *arguments)
    assert code == 0
    assert f"wrote {page}" in err
    text = page.read_text()
    assert evil not in text
    assert "&lt;img src=x onerror=alert(&quot;1&quot;)&gt;" in text
    assert text.count("data:image/jpeg;base64,") == 4
    assert "http" not in text.replace("<!doctype html>", "").replace("</html>", "").replace("<html", "")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium to look at the page with")
def test_the_page_shows_its_images_in_a_browser(home, capsys, tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    page_file = tmp_path / "page.html"
    code, *_ = search(capsys, home, home / "data" / "c2", "--html", page_file, "--top", "4", "--classes")
    assert code == 0
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        errors: list[str] = []
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(page_file.as_uri())
        assert page.locator("section").count() == 5
        assert page.locator("section ol:not(.classes) > li").count() == 20
        widths = page.eval_on_selector_all("img", "all => all.map(entry => entry.naturalWidth)")
        assert len(widths) == 25
        assert all(width > 0 for width in widths)
        assert errors == []
        browser.close()


def test_the_network_computes_in_the_precision_asked_for(home, capsys, tmp_path):
    tiny_datasets.image(tmp_path / "x.png", seed=901, size=(20, 20))
    result = {}
    for precision in ("fp32", "bf16"):
        _, out, _ = search(capsys, home, tmp_path / "x.png", "--json", "--precision", precision)
        result[precision] = [hit["similarity"] for hit in json.loads(out)["queries"][0]["hits"]]
    assert result["fp32"] != result["bf16"]
    assert result["bf16"] == pytest.approx(result["fp32"], abs=0.02)
    with pytest.raises(ValueError, match="precision must be one of 'fp32', 'bf16', 'fp16'; got 'half'"):
        iaa.load(home / "runs" / "run-1", precision="half")


def test_progress_shows_while_a_gallery_is_embedded(home, tmp_path, capsys, monkeypatch):
    for file in ("config.json", "model.safetensors"):
        shutil.copy(home / "runs" / "run-1" / file, tmp_path / file)
    tiny_datasets.image(tmp_path / "x.png", size=(20, 20))
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    assert main(["search", str(tmp_path), str(tmp_path / "x.png"), "--json"]) == 0
    shown = capsys.readouterr().err
    assert "gallery" in shown
    assert "50/50" in shown


def test_refinements_are_options_of_a_search(home, capsys):
    query = home / "data" / "c3" / "2.png"
    model = iaa.load(home / "runs" / "run-1")
    gallery = iaa.Gallery.open(model)
    row = gallery.rows_by_path[str(query)]
    z = model.embed([query])
    for words, options, note in (
        (["--expand", "2"], {"expand": 2}, "after query expansion"),
        (["--rerank"], {"rerank": True}, "re-ranked by shared neighbours"),
        (["--augment-gallery", "2"], {"index": Index(expand(gallery.data.z, neighbors=2))}, "augmentation"),
    ):
        expected = gallery.search(z, top=3, exclude=[row], **options)[0]
        code, out, _ = search(capsys, home, query, "--top", "3", "--json", *words)
        assert code == 0
        hits = json.loads(out)["queries"][0]["hits"]
        assert [hit["row"] for hit in hits] == [hit.row for hit in expected]
        assert note in search(capsys, home, query, *words)[1]
    assert search(capsys, home, query, "--rerank", "--expand", "2")[2].strip().endswith("choose one of them")


def test_flip_embeds_the_gallery_and_the_query_mirrored_as_well(home, capsys):
    query = home / "data" / "c3" / "2.png"
    code, out, _ = search(capsys, home, query, "--json", "--flip")
    assert code == 0
    model = iaa.load(home / "runs" / "run-1", flip=True)
    hit = json.loads(out)["queries"][0]["hits"][0]
    z = model.embed([query, hit["path"]], normalize=True)
    assert hit["similarity"] == pytest.approx(float(z[0] @ z[1]), abs=1e-4)
    search(capsys, home, query)  # back to what the other tests expect
