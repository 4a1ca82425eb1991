from dataclasses import replace
from pathlib import Path

import pytest

import iaa
from tiny_folders import more


@pytest.fixture
def model(run) -> iaa.Model:
    return iaa.load(run)


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


def test_add_and_remove_take_single_strings_and_paths(model, run, tmp_path):
    root, extra = more(tmp_path / "own", "ant", "bee"), more(tmp_path / "extra", "cat")
    spec = f"folder:{root}"
    assert sorted(iaa.Gallery.open(model, spec, add=str(extra)).classes) == ["ant", "bee", "cat"]
    assert sorted(iaa.Gallery.open(model, spec, remove="ant").classes) == ["bee", "cat"]
    assert sorted(iaa.Gallery.open(model, spec, remove=extra).classes) == ["bee"]
    assert len(iaa.Gallery.open(model, run / "embeddings.safetensors")) > 0
    with pytest.raises(ValueError, match="is not a gallery: did you mean folder:"):
        iaa.Gallery.open(model, root)
