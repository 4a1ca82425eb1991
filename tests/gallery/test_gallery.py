import os
import pickle
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import iaa
import tiny_datasets
import tiny_runs
from iaa.gallery.results import answer, read_queries
from iaa.retrieval.embeddings import Embeddings
from iaa.train import train
from tiny_folders import more


def test_the_own_gallery_holds_every_image_and_is_embedded_once(run, seen):
    model = iaa.load(run)
    told = []
    gallery = iaa.Gallery.open(model, on_progress=lambda done, total: told.append((done, total)))
    assert len(gallery) == 30
    assert set(gallery.data.split) == {"train", "test"}
    assert sorted(gallery.classes) == [f"c{number}" for number in range(6)]
    assert told == [(0, 30), (30, 30)]
    torch.testing.assert_close(model.embed(gallery.data.ids), gallery.data.z)
    seen.clear()
    again = iaa.Gallery.open(iaa.load(run))
    assert seen == []
    assert torch.equal(again.data.z, gallery.data.z)
    assert [file.name for file in (run / "galleries").iterdir() if file.suffix != ".lock"] == [
        "own.safetensors"
    ]


def test_searching_is_a_full_sort_by_cosine(run):
    model = iaa.load(run)
    gallery = iaa.Gallery.open(model)
    query = model.embed(gallery.data.ids[:5])
    unit = torch.nn.functional.normalize
    cosine = unit(query.double(), dim=1) @ unit(gallery.data.z.double(), dim=1).T
    order = cosine.argsort(dim=1, descending=True)
    hits = gallery.search(query, top=7)
    assert [[hit.row for hit in one] for one in hits] == order[:, :7].tolist()
    assert hits[2][0].similarity == pytest.approx(float(cosine[2].max()), abs=1e-6)
    assert [hit.label for hit in hits[1]] == [gallery.label(row) for row in order[1, :7].tolist()]
    others = gallery.search(query, top=7, exclude=range(5))
    for row, one in enumerate(others):
        assert [hit.row for hit in one] == [other for other in order[row].tolist() if other != row][:7]
    some = gallery.search(query, top=3, within=gallery.classes["c3"], exclude=range(5))
    assert {hit.label for one in some for hit in one} == {"c3"}
    assert len(gallery.search(query, top=99)[0]) == 30
    assert len(gallery.search(query, top=99, exclude=range(5))[0]) == 29
    fewer = gallery.search(query[:3], top=4, exclude=[order[0, :3].tolist(), [], -1])
    wanted = [order[0, 3:7].tolist(), order[1, :4].tolist(), order[2, :4].tolist()]
    assert [[hit.row for hit in one] for one in fewer] == wanted
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


def test_what_is_added_and_removed_leaves_the_rest_as_it_is(run, tmp_path, seen):
    model = iaa.load(run)
    first = iaa.Gallery.open(model)
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
    fifth = iaa.Gallery.open(model)  # all of it is kept
    assert fifth.data.ids == fourth.data.ids
    assert len(fifth.add(extra)) == 33  # who is added again is back
    assert sum(seen) == 2
    assert len(iaa.Gallery.open(model, remove=[str(extra)])) == 29
    with pytest.raises(ValueError, match=r"no class, no image and no added folder 'c7' \(did you mean 'c"):
        fifth.remove("c7")
    with pytest.raises(FileNotFoundError, match="no image"):
        fifth.add(tmp_path / "nothing")
    with pytest.raises(ValueError, match="what is added must be a folder or an image, got an empty name"):
        fifth.add("")


def test_a_folder_is_followed_new_changed_and_vanished_images(run, tmp_path, seen):
    model, spec = iaa.load(run), f"folder:{more(tmp_path / 'own', 'ant', 'bee', each=3)}"
    gallery = iaa.Gallery.open(model, spec)
    assert [len(rows) for rows in gallery.classes.values()] == [3, 3]
    seen.clear()
    tiny_datasets.image(tmp_path / "own" / "cat" / "0.png", seed=5, size=(20, 20))
    (tmp_path / "own" / "bee" / "2.png").unlink()
    changed = tmp_path / "own" / "ant" / "1.png"
    tiny_datasets.image(changed, seed=77, size=(20, 20))
    os.utime(changed, (time.time() + 5, time.time() + 5))
    gallery = iaa.Gallery.open(model, spec)
    assert sum(seen) == 2
    assert {name: len(rows) for name, rows in gallery.classes.items()} == {"ant": 3, "bee": 2, "cat": 1}
    torch.testing.assert_close(gallery.data.z, model.embed(gallery.data.ids))


def test_flat_folders_divided_folders_and_tables(run, tmp_path):
    model = iaa.load(run)
    flat = iaa.Gallery.open(model, f"folder:{more(tmp_path / 'flat', 'cats') / 'cats'}")
    assert list(flat.classes) == ["cats"]
    divided = more(tmp_path / "divided" / "train", "ant", "bee")
    more(tmp_path / "divided" / "test", "cat")
    assert sorted(iaa.Gallery.open(model, f"folder:{divided.parent}").classes) == ["ant", "bee", "cat"]
    table = tmp_path / "table.csv"
    table.write_text(
        "path,label,x_1,y_1,x_2,y_2\nflat/cats/0.png,a,0,0,10,20\nflat/cats/0.png,b,10,0,20,20\n"
    )
    boxes = iaa.Gallery.open(model, f"table:{table}")
    assert boxes.data.ids[0].endswith("0.png#xywh=0,0,10,20")
    assert boxes.image(1).box == (10, 0, 20, 20)
    assert not torch.allclose(boxes.data.z[0], boxes.data.z[1])
    (found,) = answer(boxes.add(flat.data.ids[1]), read_queries(model, [Path(flat.data.ids[0])]))
    assert found["in_gallery"]
    assert [hit["id"] for hit in found["hits"]] == [flat.data.ids[1]]  # none of its own boxes
    (tmp_path / "alone.csv").write_text("path,label\nflat/cats/0.png,a\nflat/cats/1.png,a\n")
    alone = iaa.Gallery.open(model, f"table:{tmp_path / 'alone.csv'}")  # a gallery needs no training part
    assert alone.data.split == ["test", "test"]
    with pytest.raises(ValueError, match="the gallery must be one of"):
        iaa.Gallery.open(model, "somewhere")


def test_unreadable_images_are_left_out_named_and_not_tried_again(run, tmp_path, seen):
    model, root = iaa.load(run), more(tmp_path / "own", "ant", "bee")
    (root / "ant" / "bad.png").write_bytes(b"nothing")
    gallery = iaa.Gallery.open(model, f"folder:{root}")
    assert len(gallery) == 4
    assert [Path(name).name for name in gallery.left_out] == ["bad.png"]
    seen.clear()
    assert len(iaa.Gallery.open(model, f"folder:{root}")) == 4
    assert seen == []
    tiny_datasets.image(root / "ant" / "bad.png", size=(20, 20))
    os.utime(root / "ant" / "bad.png", (time.time() + 5, time.time() + 5))
    assert len(iaa.Gallery.open(model, f"folder:{root}")) == 5
    (tmp_path / "worse" / "x").mkdir(parents=True)
    (tmp_path / "worse" / "x" / "bad.png").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"the gallery would be empty.*bad\.png"):
        iaa.Gallery.open(model, f"folder:{tmp_path / 'worse'}")


def test_without_its_images_a_kept_gallery_still_answers(run, tmp_path):
    model, root = iaa.load(run), more(tmp_path / "own", "ant", "bee")
    before = iaa.Gallery.open(model, f"folder:{root}")
    root.rename(tmp_path / "elsewhere")
    after = iaa.Gallery.open(model, f"folder:{root}")
    assert after.data.ids == before.data.ids
    assert "does not exist" in after.notes[0]
    assert after.image(0) is None


def test_another_network_embeds_everything_anew(run, seen):
    from safetensors.torch import load_file, save_file

    iaa.Gallery.open(iaa.load(run))
    state = load_file(run / "model.safetensors")
    changed = {key: value * 1.5 if value.is_floating_point() else value for key, value in state.items()}
    save_file(changed, run / "model.safetensors")
    seen.clear()
    gallery = iaa.Gallery.open(model := iaa.load(run))
    assert sum(seen) == 30
    assert "model has changed" in gallery.notes[0]
    torch.testing.assert_close(gallery.data.z, model.embed(gallery.data.ids))


def test_a_damaged_gallery_file_is_refused_by_name(run):
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


def test_an_embeddings_file_as_gallery_must_fit_the_model(run, tmp_path):
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


def test_embeddings_of_another_run_are_no_gallery(run, tmp_path):
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


def test_a_heads_own_embeddings_do_not_go_through_it_again(tmp_path):
    Embeddings(torch.randn(60, 8), torch.arange(60) // 6).save(tmp_path / "v.safetensors")
    folder = train(
        tiny_runs.tiny(tmp_path, tmp_path, data=f"embeddings:{tmp_path / 'v.safetensors'}"), quiet=True
    )
    kept = Embeddings.load(folder / "embeddings.safetensors")
    gallery = iaa.Gallery.open(iaa.load(folder), str(folder / "embeddings.safetensors"))
    assert torch.equal(gallery.data.z, kept.z)


def test_a_class_folder_may_be_a_link_as_in_training(run, tmp_path):
    more(tmp_path / "real", "ant", "bee")
    more(tmp_path / "own", "cat")
    (tmp_path / "own" / "a_wasp").symlink_to(tmp_path / "real" / "bee", target_is_directory=True)
    (tmp_path / "own" / "cat" / "up").symlink_to(tmp_path / "own", target_is_directory=True)
    gallery = iaa.Gallery.open(iaa.load(run), f"folder:{tmp_path / 'own'}")
    assert {name: len(rows) for name, rows in gallery.classes.items()} == {"a_wasp": 2, "cat": 2}


def test_rows_without_names_of_another_file_are_others(run, tmp_path):
    model, z = iaa.load(run), torch.randn(6, 8)
    for name in ("gallery", "queries"):
        Embeddings(z, torch.arange(6)).save(tmp_path / f"{name}.npz")
    gallery = iaa.Gallery.open(model, str(tmp_path / "gallery.npz"))
    others, own = (
        answer(gallery, read_queries(model, [tmp_path / f"{name}.npz"])) for name in ("queries", "gallery")
    )
    assert [(one["in_gallery"], one["hits"][0]["row"]) for one in others] == [
        (False, row) for row in range(6)
    ]
    assert all(one["in_gallery"] and one["hits"][0]["row"] != row for row, one in enumerate(own))


def test_numbers_that_share_a_name_are_one_class(tmp_path):
    names = {0: "bike", 1: "bike", 2: "car"}
    data = Embeddings(torch.randn(6, 4), torch.arange(6) // 2, class_names=names)
    found = iaa.Gallery.from_embeddings(data).classes
    assert {name: rows.tolist() for name, rows in found.items()} == {"bike": [0, 1, 2, 3], "car": [4, 5]}


def test_one_bad_box_leaves_the_others_of_its_image(run, tmp_path):
    tiny_datasets.image(tmp_path / "a.png", seed=1, size=(100, 100))
    rows = ["path,label,split,x_1,y_1,x_2,y_2", "a.png,x,test,0,0,50,50", "a.png,y,test,200,200,300,300"]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    gallery = iaa.Gallery.open(iaa.load(run), f"table:{tmp_path / 't.csv'}")
    assert [name.rpartition("#")[2] for name in gallery.data.ids] == ["xywh=0,0,50,50"]
    assert [name.rpartition("#")[2] for name in gallery.left_out] == ["xywh=200,200,100,100"]
    written = Path(gallery.name).stat().st_mtime_ns
    iaa.Gallery.open(iaa.load(run), f"table:{tmp_path / 't.csv'}")
    assert Path(gallery.name).stat().st_mtime_ns == written
