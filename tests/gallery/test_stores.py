"""What every store must do: the same tests over a local file and over Milvus."""

import functools
import os
import shutil
import time
from pathlib import Path

import pytest
import torch

import iaa
import tiny_datasets
from iaa.gallery.search_results import answer, read_queries
from tiny_folders import more


@pytest.fixture
def model(run) -> iaa.Model:
    return iaa.load(run)


@pytest.fixture(params=["file", "milvus"])
def open_gallery(request, tmp_path):
    if request.param == "file":
        return iaa.Gallery.open
    pytest.importorskip("milvus_lite", reason="Milvus is not installed: pip install 'iaa[milvus]'")
    return functools.partial(iaa.Gallery.open, store=f"milvus:{tmp_path / 'store' / 'gallery.db'}")


def test_the_gallery_of_a_run_holds_every_image_and_is_embedded_once(run, seen, open_gallery):
    model = iaa.load(run)
    captured = []
    gallery = open_gallery(model, on_progress=lambda done, total: captured.append((done, total)))
    assert len(gallery) == 30
    assert set(gallery.data.split) == {"train", "test"}
    assert sorted(gallery.classes) == [f"c{number}" for number in range(6)]
    assert captured == [(0, 30), (30, 30)]
    torch.testing.assert_close(model.embed(gallery.data.ids), gallery.data.z)
    seen.clear()
    again = open_gallery(iaa.load(run))
    assert seen == []
    assert torch.equal(again.data.z, gallery.data.z)
    left = [file.name for file in (run / "galleries").glob("*") if file.suffix != ".lock"]
    assert left == (["own.safetensors"] if gallery.store is None else [])


def test_search_equals_a_full_sort_by_cosine(run, open_gallery):
    model = iaa.load(run)
    gallery = open_gallery(model)
    query = model.embed(gallery.data.ids[:5])
    unit = torch.nn.functional.normalize
    cosine = unit(query.double(), dim=1) @ unit(gallery.data.z.double(), dim=1).T
    order = cosine.argsort(dim=1, descending=True)
    hits = gallery.search(query, top=7)
    assert [[hit.row for hit in entry] for entry in hits] == order[:, :7].tolist()
    assert hits[2][0].similarity == pytest.approx(float(cosine[2].max()), abs=1e-6)
    assert [hit.label for hit in hits[1]] == [gallery.label(row) for row in order[1, :7].tolist()]
    others = gallery.search(query, top=7, exclude=range(5))
    for row, hits_of_row in enumerate(others):
        assert [hit.row for hit in hits_of_row] == [other for other in order[row].tolist() if other != row][
            :7
        ]
    some = gallery.search(query, top=3, within=gallery.classes["c3"], exclude=range(5))
    assert {hit.label for entry in some for hit in entry} == {"c3"}
    assert len(gallery.search(query, top=99)[0]) == 30
    assert len(gallery.search(query, top=99, exclude=range(5))[0]) == 29
    fewer = gallery.search(query[:3], top=4, exclude=[order[0, :3].tolist(), [], -1])
    wanted = [order[0, 3:7].tolist(), order[1, :4].tolist(), order[2, :4].tolist()]
    assert [[hit.row for hit in entry] for entry in fewer] == wanted
    few = gallery.search(query[:1], top=9, within=torch.tensor([1, 4, 8]), exclude=[[0, 4]])
    assert sorted(hit.row for hit in few[0]) == [1, 8]
    for wrong, message in (
        ({"exclude": [0]}, "exclude must have an entry per query, 5, got 1"),
        ({"exclude": [0, 1, 2, 3, 30]}, "exclude must hold rows of the gallery, 0 … 29, or -1; got 30"),
        ({"exclude": [0, 1, 2, 3, [-2]]}, "exclude must hold rows of the gallery, 0 … 29, or -1; got -2"),
        ({"within": torch.tensor([0, 30])}, "within must hold rows of the gallery, 0 … 29"),
        ({"within": torch.tensor([-1])}, "within must hold rows of the gallery, 0 … 29"),
    ):
        with pytest.raises(ValueError, match=message):
            gallery.search(query, **wrong)


def test_add_and_remove_leave_the_other_rows_unchanged(run, tmp_path, seen, open_gallery):
    model = iaa.load(run)
    first = open_gallery(model)
    seen.clear()
    extra = more(tmp_path / "extra", "bee", "wasp")
    second = first.add(extra)
    assert sum(seen) == 4
    assert len(second) == 34
    assert len(first) == 30  # a snapshot stays what it was
    kept = {name: row for row, name in enumerate(second.data.ids)}
    assert torch.equal(second.data.z[[kept[name] for name in first.data.ids]], first.data.z)
    seen.clear()
    third = second.remove("bee")
    assert sorted(third.classes)[:2] == ["c0", "c1"]
    assert "bee" not in third.classes
    path = third.data.ids[0]
    fourth = third.remove(path)
    assert path not in fourth.data.ids
    assert Path(path).exists()
    assert seen == []
    fifth = open_gallery(model)  # all of it is kept
    assert fifth.data.ids == fourth.data.ids
    assert len(fifth.add(extra)) == 33  # who is added again is back
    assert sum(seen) == 2
    assert len(open_gallery(model, remove=[str(extra)])) == 29
    with pytest.raises(ValueError, match=r"no class, no image and no added folder 'c7' \(did you mean 'c"):
        fifth.remove("c7")
    with pytest.raises(FileNotFoundError, match="no image"):
        fifth.add(tmp_path / "nothing")
    with pytest.raises(ValueError, match="what is added must be a folder or an image, got an empty name"):
        fifth.add("")


def test_new_changed_and_missing_images_of_a_folder_are_noticed(run, tmp_path, seen, open_gallery):
    model, spec = iaa.load(run), f"folder:{more(tmp_path / 'own', 'ant', 'bee', each=3)}"
    gallery = open_gallery(model, spec)
    assert [len(rows) for rows in gallery.classes.values()] == [3, 3]
    seen.clear()
    tiny_datasets.image(tmp_path / "own" / "cat" / "0.png", seed=5, size=(20, 20))
    (tmp_path / "own" / "bee" / "2.png").unlink()
    changed = tmp_path / "own" / "ant" / "1.png"
    tiny_datasets.image(changed, seed=77, size=(20, 20))
    os.utime(changed, (time.time() + 5, time.time() + 5))
    gallery = open_gallery(model, spec)
    assert sum(seen) == 2
    assert {name: len(rows) for name, rows in gallery.classes.items()} == {"ant": 3, "bee": 2, "cat": 1}
    torch.testing.assert_close(gallery.data.z, model.embed(gallery.data.ids))


def test_flat_folders_split_folders_and_tables(run, tmp_path, open_gallery):
    model = iaa.load(run)
    flat = open_gallery(model, f"folder:{more(tmp_path / 'flat', 'cats') / 'cats'}")
    assert list(flat.classes) == ["cats"]
    divided = more(tmp_path / "divided" / "train", "ant", "bee")
    more(tmp_path / "divided" / "test", "cat")
    assert sorted(open_gallery(model, f"folder:{divided.parent}").classes) == ["ant", "bee", "cat"]
    table = tmp_path / "table.csv"
    table.write_text(
        "path,label,x_1,y_1,x_2,y_2\nflat/cats/0.png,a,0,0,10,20\nflat/cats/0.png,b,10,0,20,20\n"
    )
    boxes = open_gallery(model, f"table:{table}")
    assert boxes.data.ids[0].endswith("0.png#xywh=0,0,10,20")
    assert boxes.image(1).box == (10, 0, 20, 20)
    assert not torch.allclose(boxes.data.z[0], boxes.data.z[1])
    (result,) = answer(boxes.add(flat.data.ids[1]), read_queries(model, [Path(flat.data.ids[0])]))
    assert result["in_gallery"]
    assert [hit["id"] for hit in result["hits"]] == [flat.data.ids[1]]  # none of its own boxes
    (tmp_path / "alone.csv").write_text("path,label\nflat/cats/0.png,a\nflat/cats/1.png,a\n")
    alone = open_gallery(model, f"table:{tmp_path / 'alone.csv'}")  # a gallery needs no training part
    assert alone.data.split == ["test", "test"]
    with pytest.raises(ValueError, match="the gallery must be one of"):
        open_gallery(model, "somewhere")


def test_unreadable_images_are_listed_and_not_read_again(run, tmp_path, seen, open_gallery):
    model, root = iaa.load(run), more(tmp_path / "own", "ant", "bee")
    (root / "ant" / "bad.png").write_bytes(b"nothing")
    gallery = open_gallery(model, f"folder:{root}")
    assert len(gallery) == 4
    assert [Path(name).name for name in gallery.left_out] == ["bad.png"]
    seen.clear()
    assert len(open_gallery(model, f"folder:{root}")) == 4
    assert seen == []
    tiny_datasets.image(root / "ant" / "bad.png", size=(20, 20))
    os.utime(root / "ant" / "bad.png", (time.time() + 5, time.time() + 5))
    assert len(open_gallery(model, f"folder:{root}")) == 5
    (tmp_path / "worse" / "x").mkdir(parents=True)
    (tmp_path / "worse" / "x" / "bad.png").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"the gallery would be empty.*bad\.png"):
        open_gallery(model, f"folder:{tmp_path / 'worse'}")


def test_a_stored_gallery_is_searched_without_its_images(run, tmp_path, open_gallery):
    model, root = iaa.load(run), more(tmp_path / "own", "ant", "bee")
    before = open_gallery(model, f"folder:{root}")
    root.rename(tmp_path / "elsewhere")
    after = open_gallery(model, f"folder:{root}")
    assert after.data.ids == before.data.ids
    assert "does not exist" in after.notes[0]
    assert after.image(0) is None


def test_another_network_embeds_everything_again(run, seen, open_gallery):
    from safetensors.torch import load_file, save_file

    open_gallery(iaa.load(run))
    state = load_file(run / "model.safetensors")
    save_file({key: (value * 1.5).to(value) for key, value in state.items()}, run / "model.safetensors")
    seen.clear()
    gallery = open_gallery(model := iaa.load(run))
    assert sum(seen) == 30
    assert "model has changed" in gallery.notes[0]
    torch.testing.assert_close(gallery.data.z, model.embed(gallery.data.ids))


def test_a_bad_box_does_not_affect_other_boxes_of_its_image(run, tmp_path, monkeypatch, open_gallery):
    tiny_datasets.image(tmp_path / "a.png", seed=1, size=(100, 100))
    rows = ["path,label,split,x_1,y_1,x_2,y_2", "a.png,x,test,0,0,50,50", "a.png,y,test,200,200,300,300"]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    gallery = open_gallery(iaa.load(run), f"table:{tmp_path / 't.csv'}")
    assert [name.rpartition("#")[2] for name in gallery.data.ids] == ["xywh=0,0,50,50"]
    assert [name.rpartition("#")[2] for name in gallery.left_out] == ["xywh=200,200,100,100"]
    with monkeypatch.context() as patch:
        patch.setattr("iaa.gallery.update._update", None)  # would fail if called
        open_gallery(iaa.load(run), f"table:{tmp_path / 't.csv'}")


def test_an_added_folder_that_is_gone_is_left_out_and_can_be_removed(model, tmp_path, open_gallery):
    root, extra = more(tmp_path / "own", "ant", "bee"), more(tmp_path / "extra", "cat")
    single, spec = tiny_datasets.image(tmp_path / "one" / "single.png", size=(20, 20)), f"folder:{root}"
    table = tmp_path / "one" / "table.csv"
    table.write_text("path,label,split\n../extra/cat/0.png,a,test\n")
    assert len(open_gallery(model, spec, add=[extra, single, f"table:{table}"])) == 7
    shutil.rmtree(tmp_path / "one")
    shutil.rmtree(extra)
    more(root, "dog")
    gallery = open_gallery(model, spec)
    assert sorted(gallery.classes) == ["ant", "bee", "dog"]
    for note, place in zip(gallery.notes, (extra, single, table), strict=True):
        assert str(place) in note
    assert len(gallery.add(more(tmp_path / "other", "eel"))) == 8
    for place in (str(single), str(extra), f"table:{table}"):
        gallery = gallery.remove(place)
    assert gallery.notes == ()
    assert sorted(gallery.classes) == ["ant", "bee", "dog", "eel"]


def test_an_image_that_was_added_and_is_in_a_folder_as_well_can_be_removed(model, tmp_path, open_gallery):
    root = more(tmp_path / "own", "ant", "bee")
    path = str(root / "ant" / "0.png")
    gallery = open_gallery(model, f"folder:{root}", add=[path]).remove(path)
    assert path not in gallery.data.ids
    assert path in gallery.add(path).data.ids


def test_an_image_replaced_by_an_older_one_is_embedded_again(model, tmp_path, seen, open_gallery):
    root = more(tmp_path / "own", "ant", "bee")
    before = open_gallery(model, f"folder:{root}").data.z.clone()
    path = root / "ant" / "1.png"
    tiny_datasets.image(path, seed=77, size=(20, 20))
    os.utime(path, (1e9, 1e9))
    seen.clear()
    after = open_gallery(model, f"folder:{root}")
    assert sum(seen) == 1
    assert not torch.equal(before, after.data.z)
    torch.testing.assert_close(after.data.z, model.embed(after.data.ids))
    seen.clear()
    open_gallery(model, f"folder:{root}")
    assert seen == []


def test_an_unreadable_image_is_read_again_once_its_file_changes(model, tmp_path, open_gallery):
    root, table = more(tmp_path / "own", "ant"), tmp_path / "own" / "table.csv"
    (root / "bad.png").write_bytes(b"nothing")
    table.write_text("path,label,split\nant/0.png,a,test\nbad.png,a,test\nnone.png,b,test\n")
    for _ in range(3):
        gallery = open_gallery(model, f"table:{table}")
        assert [Path(name).name for name in gallery.left_out] == ["bad.png", "none.png"]
        assert gallery.describe()["left_out"] == 2
    for name in ("bad.png", "none.png"):
        shutil.copy(root / "ant" / "1.png", root / name)
        os.utime(root / name, (1e9, 1e9))
        gallery = open_gallery(model, f"table:{table}")
        assert str(root / name) in gallery.data.ids
    assert (len(gallery), gallery.left_out) == (3, {})


def test_adding_what_cannot_be_read_changes_nothing(model, tmp_path, open_gallery):
    root = more(tmp_path / "own", "ant")
    before = open_gallery(model, f"folder:{root}")
    content = Path(before.name).read_bytes() if before.store is None else b""
    bad = tmp_path / "extra" / "bad.png"
    bad.parent.mkdir()
    bad.write_bytes(b"nothing")
    for place in (bad, bad.parent):
        with pytest.raises(ValueError, match=f"nothing of {place} can be read: "):
            open_gallery(model, f"folder:{root}", add=[place])
    gallery = open_gallery(model, f"folder:{root}")
    assert gallery.rows.header == before.rows.header
    assert gallery.ids == before.ids
    assert torch.equal(gallery.data.z, before.data.z)
    assert (Path(gallery.name).read_bytes() if gallery.store is None else b"") == content
    tiny_datasets.image(bad.parent / "good.png", size=(20, 20))
    assert list(gallery.add(bad.parent).left_out) == [str(bad)]


def test_an_image_whose_name_is_not_utf8_is_left_out_by_name(model, tmp_path, seen, open_gallery):
    root = more(tmp_path / "own", "ant", "bee")
    odd = os.fsencode(root / "ant") + b"/\xe4.png"
    try:
        shutil.copy(root / "ant" / "0.png", odd)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    for _ in range(2):
        gallery = open_gallery(model, f"folder:{root}")
        assert len(gallery) == 4
        assert gallery.left_out == {rf"{root}/ant/\udce4.png": "its name is not UTF-8: rename it"}
        assert sum(seen) == 4
    with pytest.raises(ValueError, match="can be read: its name is not UTF-8"):
        gallery.add(os.fsdecode(odd))
    os.unlink(odd)
    assert open_gallery(model, f"folder:{root}").left_out == {}


def test_a_table_without_its_labels_is_an_error(model, tmp_path, open_gallery):
    root, table = more(tmp_path / "own", "ant"), tmp_path / "table.csv"
    table.write_text("path,label,split\nown/ant/0.png,a,test\n")
    open_gallery(model, f"table:{table}")
    open_gallery(model, f"folder:{root}", add=[f"table:{table}"])
    table.write_text("path,split\nown/ant/0.png,test\n")
    for spec in (f"table:{table}", f"folder:{root}"):
        with pytest.raises(ValueError, match=r"table\.csv has no column 'label'"):
            open_gallery(model, spec)
    table.unlink()
    assert "does not exist" in open_gallery(model, f"table:{table}").notes[0]


def test_an_image_replaced_after_a_kill_is_embedded_as_it_is_now(model, tmp_path, monkeypatch, open_gallery):
    from iaa.gallery import embedding

    root = more(tmp_path / "own", "ant", "bee")
    image = (root / "ant" / "0.png").read_bytes()
    for number in range(80):
        (root / "ant" / f"more {number}.png").write_bytes(image)

    def stop(done: int, total: int) -> None:
        if done >= 64:
            raise KeyboardInterrupt

    monkeypatch.setattr(embedding, "SAVE_EVERY", 64)
    with pytest.raises(KeyboardInterrupt):
        open_gallery(model, f"folder:{root}", on_progress=stop)
    shutil.copy(root / "bee" / "1.png", root / "ant" / "0.png")
    gallery = open_gallery(model, f"folder:{root}")
    torch.testing.assert_close(gallery.data.z, model.embed(gallery.data.ids), rtol=1e-5, atol=1e-5)
