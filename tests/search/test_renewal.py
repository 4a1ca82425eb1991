import shutil

import pytest

import iaa
import miniatures
from shelves import more


@pytest.fixture
def model(run) -> iaa.Model:
    return iaa.load(run)


def test_what_was_added_and_is_gone_counts_as_nothing_and_can_be_taken_out(model, tmp_path):
    root, extra = more(tmp_path / "own", "ant", "bee"), more(tmp_path / "extra", "cat")
    single, spec = miniatures.picture(tmp_path / "one" / "single.png", size=(20, 20)), f"folder:{root}"
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
    assert len(gallery.add(model, more(tmp_path / "other", "eel"))) == 8
    for place in (str(single), str(extra), f"table:{table}"):
        gallery = gallery.remove(model, place)
    assert gallery.notes == ()
    assert sorted(gallery.classes) == ["ant", "bee", "dog", "eel"]


def test_a_picture_that_was_added_and_stands_in_a_folder_as_well_can_be_taken_out(model, tmp_path):
    root = more(tmp_path / "own", "ant", "bee")
    path = str(root / "ant" / "0.png")
    gallery = iaa.Gallery.open(model, f"folder:{root}", add=[path]).remove(model, path)
    assert path not in gallery.data.ids
    assert path in gallery.add(model, path).data.ids
