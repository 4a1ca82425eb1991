import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import iaa
import tiny_runs
from iaa.gallery.search_results import answer, read_queries
from iaa.retrieval.embeddings import Embeddings
from iaa.train import train
from tiny_folders import more


def test_a_damaged_gallery_file_is_named(run):
    model = iaa.load(run)
    gallery = iaa.Gallery.open(model)
    whole = Path(gallery.name).read_bytes()
    for content in (whole[:-9], pickle.dumps({"z": 1})):
        Path(gallery.name).write_bytes(content)
        with pytest.raises(ValueError, match=r"own\.safetensors .*: delete it to have it made again"):
            iaa.Gallery.open(model)
    data = Embeddings(torch.randn(3, 8), torch.arange(3), meta=gallery.data.meta | {"gallery": 99})
    data.save(Path(gallery.name))
    with pytest.raises(
        ValueError, match=r"own\.safetensors is a gallery of version 99, this program reads 1"
    ):
        iaa.Gallery.open(model)
    replace(gallery.data, z=torch.randn(30, 5)).save(Path(gallery.name))
    with pytest.raises(
        ValueError, match=r"own\.safetensors holds vectors of 5 dimensions, the model makes 8"
    ):
        iaa.Gallery.open(model)


def test_an_embeddings_file_must_match_the_model(run, tmp_path):
    model = iaa.load(run)
    gallery = iaa.Gallery.open(model, str(run / "embeddings.safetensors"))
    assert gallery.search(gallery.data.z[:1], top=1)[0][0].row == 0
    Embeddings(torch.randn(3, 5), torch.arange(3)).save(tmp_path / "five.safetensors")
    with pytest.raises(
        ValueError, match=r"five\.safetensors holds vectors of 5 dimensions, the model .* makes 8"
    ):
        iaa.Gallery.open(model, str(tmp_path / "five.safetensors"))
    foreign = {"weights_sha256": "0" * 64}
    Embeddings(torch.randn(3, 8), torch.arange(3), meta=foreign).save(tmp_path / "foreign.safetensors")
    with pytest.raises(ValueError, match=r"foreign\.safetensors was made by another network"):
        iaa.Gallery.open(model, str(tmp_path / "foreign.safetensors"))
    with pytest.raises(ValueError, match="only galleries kept with a run can be changed"):
        iaa.Gallery.open(model, str(run / "embeddings.safetensors"), remove=["c1"])
    with pytest.raises(ValueError, match=r"holds vectors of 8 dimensions, the query has shape \(1, 3\)"):
        gallery.search(torch.zeros(1, 3))


def test_embeddings_of_another_run_are_not_a_gallery(run, tmp_path):
    model, own = iaa.load(run), Embeddings.load(run / "embeddings.safetensors")
    own.save(tmp_path / "copy.safetensors")
    assert len(iaa.Gallery.open(model, str(tmp_path / "copy.safetensors"))) == len(own)
    replace(own, meta=own.meta | {"weights_sha256": "0" * 64}).save(tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=r"other\.safetensors was made by another network"):
        iaa.Gallery.open(model, str(tmp_path / "other.safetensors"))
    replace(own, meta=own.meta | {"pool": "avg+max"}).save(tmp_path / "pool.safetensors")
    with pytest.raises(
        ValueError, match=r"pool\.safetensors was made with pool avg\+max, the model .* has avg"
    ):
        iaa.Gallery.open(model, str(tmp_path / "pool.safetensors"))
    with pytest.raises(
        ValueError, match=r"copy\.safetensors was made with flip False, the model .* has True"
    ):
        iaa.Gallery.open(iaa.load(run, flip=True), str(tmp_path / "copy.safetensors"))


def test_embeddings_made_by_a_head_are_not_embedded_again(tmp_path):
    Embeddings(torch.randn(60, 8), torch.arange(60) // 6).save(tmp_path / "v.safetensors")
    folder = train(
        tiny_runs.tiny(tmp_path, tmp_path, data=f"embeddings:{tmp_path / 'v.safetensors'}"), quiet=True
    )
    kept = Embeddings.load(folder / "embeddings.safetensors")
    gallery = iaa.Gallery.open(iaa.load(folder), str(folder / "embeddings.safetensors"))
    assert torch.equal(gallery.data.z, kept.z)


def test_a_class_folder_may_be_a_symbolic_link(run, tmp_path):
    more(tmp_path / "real", "ant", "bee")
    more(tmp_path / "own", "cat")
    (tmp_path / "own" / "a_wasp").symlink_to(tmp_path / "real" / "bee", target_is_directory=True)
    (tmp_path / "own" / "cat" / "up").symlink_to(tmp_path / "own", target_is_directory=True)
    gallery = iaa.Gallery.open(iaa.load(run), f"folder:{tmp_path / 'own'}")
    assert {name: len(rows) for name, rows in gallery.classes.items()} == {"a_wasp": 2, "cat": 2}


def test_rows_without_ids_of_two_files_are_different(run, tmp_path):
    model, z = iaa.load(run), torch.randn(6, 8)
    for name in ("gallery", "queries"):
        Embeddings(z, torch.arange(6)).save(tmp_path / f"{name}.npz")
    gallery = iaa.Gallery.open(model, str(tmp_path / "gallery.npz"))
    others, own = (
        answer(gallery, read_queries(model, [tmp_path / f"{name}.npz"])) for name in ("queries", "gallery")
    )
    assert [(entry["in_gallery"], entry["hits"][0]["row"]) for entry in others] == [
        (False, row) for row in range(6)
    ]
    assert all(entry["in_gallery"] and entry["hits"][0]["row"] != row for row, entry in enumerate(own))


def test_a_gallery_opens_from_a_path_and_shows_itself_on_one_line(run):
    gallery = iaa.Gallery.open(run)
    images = f"{len(gallery)} images of {len(gallery.classes)} classes"
    assert repr(gallery) == f"Gallery({gallery.name!r}, {images}, dim={gallery.dim})"
    assert repr(gallery.data) == f"Embeddings({images.replace('images', 'vectors')}, dim={gallery.dim})"


@pytest.mark.usefixtures("unchecked")
def test_what_a_gallery_cannot_hold_is_refused_in_words(run, tmp_path):
    gallery = iaa.Gallery.open(run)
    with pytest.raises(TypeError, match="refers to image files: give paths, got Tensor"):
        gallery.add(torch.zeros(1, 4, 4))
    (tmp_path / "photos").mkdir()
    with pytest.raises(ValueError, match=r"photos is not a gallery: did you mean folder:.*photos?"):
        iaa.Gallery.open(run, str(tmp_path / "photos"))


def test_class_numbers_that_share_a_name_are_one_class(tmp_path):
    names = {0: "bike", 1: "bike", 2: "car"}
    data = Embeddings(torch.randn(6, 4), torch.arange(6) // 2, class_names=names)
    result = iaa.Gallery.from_embeddings(data).classes
    assert {name: rows.tolist() for name, rows in result.items()} == {"bike": [0, 1, 2, 3], "car": [4, 5]}
