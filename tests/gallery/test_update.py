import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import iaa
import tiny_datasets
from tiny_folders import more


@pytest.fixture
def model(run) -> iaa.Model:
    return iaa.load(run)


def test_what_was_added_and_is_gone_counts_as_nothing_and_can_be_taken_out(model, tmp_path):
    root, extra = more(tmp_path / "own", "ant", "bee"), more(tmp_path / "extra", "cat")
    single, spec = tiny_datasets.image(tmp_path / "one" / "single.png", size=(20, 20)), f"folder:{root}"
    table = tmp_path / "one" / "table.csv"
    table.write_text("path,label,split\n../extra/cat/0.png,a,test\n")
    assert len(iaa.Gallery.open(model, spec, add=[extra, single, f"table:{table}"])) == 7
    shutil.rmtree(tmp_path / "one")
    shutil.rmtree(extra)
    more(root, "dog")
    gallery = iaa.Gallery.open(model, spec)
    assert sorted(gallery.classes) == ["ant", "bee", "dog"]
    for note, place in zip(gallery.notes, (extra, single, table), strict=True):
        assert str(place) in note
    assert len(gallery.add(more(tmp_path / "other", "eel"))) == 8
    for place in (str(single), str(extra), f"table:{table}"):
        gallery = gallery.remove(place)
    assert gallery.notes == ()
    assert sorted(gallery.classes) == ["ant", "bee", "dog", "eel"]


def test_an_image_that_was_added_and_stands_in_a_folder_as_well_can_be_taken_out(model, tmp_path):
    root = more(tmp_path / "own", "ant", "bee")
    path = str(root / "ant" / "0.png")
    gallery = iaa.Gallery.open(model, f"folder:{root}", add=[path]).remove(path)
    assert path not in gallery.data.ids
    assert path in gallery.add(path).data.ids


def test_an_image_replaced_by_an_older_one_is_embedded_anew(model, tmp_path, seen):
    root = more(tmp_path / "own", "ant", "bee")
    before = iaa.Gallery.open(model, f"folder:{root}")
    path = root / "ant" / "1.png"
    tiny_datasets.image(path, seed=77, size=(20, 20))
    os.utime(path, (1e9, 1e9))
    seen.clear()
    after = iaa.Gallery.open(model, f"folder:{root}")
    assert sum(seen) == 1
    assert not torch.equal(before.data.z, after.data.z)
    torch.testing.assert_close(after.data.z, model.embed(after.data.ids))
    seen.clear()
    iaa.Gallery.open(model, f"folder:{root}")
    assert seen == []


def test_an_image_left_out_is_told_every_time_and_tried_again_whatever_its_date(model, tmp_path):
    root, table = more(tmp_path / "own", "ant"), tmp_path / "own" / "table.csv"
    (root / "bad.png").write_bytes(b"nothing")
    table.write_text("path,label,split\nant/0.png,a,test\nbad.png,a,test\nnone.png,b,test\n")
    for _ in range(3):
        gallery = iaa.Gallery.open(model, f"table:{table}")
        assert [Path(name).name for name in gallery.left_out] == ["bad.png", "none.png"]
        assert gallery.describe()["left_out"] == 2
    for name in ("bad.png", "none.png"):
        shutil.copy(root / "ant" / "1.png", root / name)
        os.utime(root / name, (1e9, 1e9))
        gallery = iaa.Gallery.open(model, f"table:{table}")
        assert str(root / name) in gallery.data.ids
    assert (len(gallery), gallery.left_out) == (3, {})


def test_adding_what_cannot_be_read_changes_nothing(model, tmp_path):
    root = more(tmp_path / "own", "ant")
    before = Path(iaa.Gallery.open(model, f"folder:{root}").name).read_bytes()
    bad = tmp_path / "extra" / "bad.png"
    bad.parent.mkdir()
    bad.write_bytes(b"nothing")
    for place in (bad, bad.parent):
        with pytest.raises(ValueError, match=f"nothing of {place} can be read: "):
            iaa.Gallery.open(model, f"folder:{root}", add=[place])
    gallery = iaa.Gallery.open(model, f"folder:{root}")
    assert Path(gallery.name).read_bytes() == before
    tiny_datasets.image(bad.parent / "good.png", size=(20, 20))
    assert list(gallery.add(bad.parent).left_out) == [str(bad)]


@pytest.mark.usefixtures("unchecked")
def test_a_gallery_with_a_damaged_header_is_refused_in_one_line(model, tmp_path):
    spec = f"folder:{more(tmp_path / 'own', 'ant', 'bee')}"
    gallery = iaa.Gallery.open(model, spec)
    whole, meta = gallery.data, gallery.data.meta
    sources = meta["sources"]
    headers = [
        {name: meta[name] for name in meta if name != lost}
        for lost in ("model", "sources", "left_out", "stamps")
    ]
    headers += [
        meta | {"sources": wrong}
        for wrong in (None, [], {}, sources | {"more": []}, sources | {"sources": 3})
    ]
    headers += [meta | {"sources": sources | {"sources": wrong}} for wrong in (["x"], [1], ["folder:"])]
    headers += [
        meta | {"left_out": [1]},
        meta | {"left_out": {"a": None}},
        meta | {"model": "m"},
        meta | {"stamps": "?"},
        [],
        None,
    ]
    damaged = [replace(whole, meta=header) for header in headers]
    damaged += [replace(whole, class_names=None), replace(whole, class_names={0: "ant"})]
    for data in damaged:
        data.save(Path(gallery.name))
        for changes in ({}, {"remove": ["ant"]}):
            with pytest.raises(ValueError, match=r"^[^\n]*: delete it to have it made again$") as raised:
                iaa.Gallery.open(model, spec, **changes)
            assert str(Path(gallery.name)) in str(raised.value)


def test_an_image_whose_name_is_no_text_is_left_out_by_name(model, tmp_path, seen):
    root = more(tmp_path / "own", "ant", "bee")
    odd = os.fsencode(root / "ant") + b"/\xe4.png"
    try:
        shutil.copy(root / "ant" / "0.png", odd)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    for _ in range(2):
        gallery = iaa.Gallery.open(model, f"folder:{root}")
        assert len(gallery) == 4
        assert gallery.left_out == {rf"{root}/ant/\udce4.png": "its name is not UTF-8: rename it"}
        assert sum(seen) == 4
    with pytest.raises(ValueError, match="can be read: its name is not UTF-8"):
        gallery.add(os.fsdecode(odd))
    os.unlink(odd)
    assert iaa.Gallery.open(model, f"folder:{root}").left_out == {}


def test_a_table_that_is_there_but_lost_its_labels_is_an_error(model, tmp_path):
    root, table = more(tmp_path / "own", "ant"), tmp_path / "table.csv"
    table.write_text("path,label,split\nown/ant/0.png,a,test\n")
    iaa.Gallery.open(model, f"table:{table}")
    iaa.Gallery.open(model, f"folder:{root}", add=[f"table:{table}"])
    table.write_text("path,split\nown/ant/0.png,test\n")
    for spec in (f"table:{table}", f"folder:{root}"):
        with pytest.raises(ValueError, match=r"table\.csv has no column 'label'"):
            iaa.Gallery.open(model, spec)
    table.unlink()
    assert "does not exist" in iaa.Gallery.open(model, f"table:{table}").notes[0]


def test_one_name_is_one_thing_and_paths_are_names(model, run, tmp_path):
    root, extra = more(tmp_path / "own", "ant", "bee"), more(tmp_path / "extra", "cat")
    spec = f"folder:{root}"
    assert sorted(iaa.Gallery.open(model, spec, add=str(extra)).classes) == ["ant", "bee", "cat"]
    assert sorted(iaa.Gallery.open(model, spec, remove="ant").classes) == ["bee", "cat"]
    assert sorted(iaa.Gallery.open(model, spec, remove=extra).classes) == ["bee"]
    assert len(iaa.Gallery.open(model, run / "embeddings.safetensors")) > 0
    with pytest.raises(ValueError, match="the gallery must be one of 'folder:DIR'"):
        iaa.Gallery.open(model, root)


def test_an_image_replaced_after_a_kill_is_embedded_as_it_is_now(model, tmp_path, monkeypatch):
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
        iaa.Gallery.open(model, f"folder:{root}", on_progress=stop)
    shutil.copy(root / "bee" / "1.png", root / "ant" / "0.png")
    gallery = iaa.Gallery.open(model, f"folder:{root}")
    torch.testing.assert_close(gallery.data.z, model.embed(gallery.data.ids), rtol=1e-5, atol=1e-5)
