import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import iaa
from iaa.gallery.search_results import Hit, SearchResults
from tiny_folders import more


def test_a_query_may_be_a_path_an_image_bytes_an_array_or_a_vector(run):
    gallery = iaa.Gallery.open(iaa.load(run))
    path = gallery.ids[7]
    image = Image.open(path)
    z = gallery.vectors(torch.tensor([7, 3]))
    for query in (path, Path(path), image, Path(path).read_bytes(), np.array(image), z[0], z[0].numpy()):
        results = gallery.search(query, top=3)
        assert len(results) == 1
        assert results[0][0].row == 7
        assert results[0][0].similarity == pytest.approx(1, abs=1e-5)
    for batch in (
        [path, gallery.ids[3]],
        np.stack([np.array(Image.open(gallery.ids[row])) for row in (7, 3)]),
    ):
        assert [hits[0].row for hits in gallery.search(batch)] == [7, 3]
    for batch in (z, z.numpy(), list(z)):
        assert [hits[0].row for hits in gallery.search(batch)] == [7, 3]
    assert gallery.search(path).queries == [path]
    assert gallery.search(z).queries == ["0", "1"]


def test_a_search_within_a_class(run):
    gallery = iaa.Gallery.open(iaa.load(run))
    hits = gallery.search(gallery.ids[0], top=9, label="c3")[0]
    assert [hit.label for hit in hits] == ["c3"] * 5
    everything = gallery.search(gallery.ids[0], top=30)[0]
    assert [hit.row for hit in hits] == [hit.row for hit in everything if hit.label == "c3"]
    with pytest.raises(ValueError, match="the gallery has no class 'c9'"):
        gallery.search(gallery.ids[0], label="c9")
    with pytest.raises(ValueError, match="label and within must not be given together"):
        gallery.search(gallery.ids[0], label="c3", within=torch.tensor([0]))


def test_a_gallery_of_embeddings_takes_vectors_only(tmp_path):
    gallery = iaa.Gallery.from_embeddings(iaa.Embeddings(torch.eye(4), torch.arange(4)))
    assert [hits[0].row for hits in gallery.search(torch.eye(4)[[2, 1]], top=1)] == [2, 1]
    with pytest.raises(ValueError, match="a query must be vectors of floats"):
        gallery.search("photo.jpg")
    with pytest.raises(ValueError, match="was made without a model and cannot be changed"):
        gallery.add(tmp_path)


def test_several_paths_are_added_one_by_one_or_in_a_list(run, tmp_path):
    one, two = more(tmp_path / "one", "ant"), more(tmp_path / "two", "bee")
    gallery = iaa.Gallery.open(iaa.load(run))
    assert len(gallery.add(one, two)) == 34
    assert len(iaa.Gallery.open(iaa.load(run)).remove([one, two])) == 30
    assert len(gallery.add([one, two])) == 34


RESULTS = SearchResults(
    [[Hit(3, 0.98765, "cat", "a.png"), Hit(1, 0.5, "\x1b[2J", "b.png")], []], ["q.png", "r"]
)


def test_results_print_as_a_table_without_control_characters():
    assert str(RESULTS).splitlines() == [
        "query  rank  similarity  label    id",
        "q.png     1       0.988  cat      a.png",
        r"q.png     2       0.500  \x1b[2J  b.png",
    ]
    assert repr(RESULTS) == str(RESULTS)
    assert RESULTS[1:].queries == ["r"]
    assert [len(hits) for hits in RESULTS] == [2, 0]


def test_results_become_a_data_frame():
    pandas = pytest.importorskip("pandas", reason="pandas holds the frame")
    frame = RESULTS.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["query", "rank", "similarity", "label", "id", "row"]
    assert frame["row"].tolist() == [3, 1]
    assert list(SearchResults([[]], ["q"]).to_pandas().columns) == list(frame.columns)


def test_without_pandas_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pandas is not installed: pip install 'iaa\[tables\]'"):
        RESULTS.to_pandas()
