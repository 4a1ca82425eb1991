import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import iaa
import miniatures
import runs
from iaa.config import Split
from iaa.models import Embedder
from iaa.retrieval.embeddings import Embeddings
from iaa.train import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    base = tmp_path_factory.mktemp("gallery")
    runs.pictures(base / "data", classes=6, each=5)
    return train(runs.tiny(base / "data", base / "runs", epochs=1, split=Split(test_share=0.4)), quiet=True)


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A copy of its own, without a gallery."""
    folder = tmp_path / "run"
    folder.mkdir()
    for file in ("config.json", "model.safetensors", "embeddings.safetensors"):
        (folder / file).write_bytes((trained / file).read_bytes())
    return folder


@pytest.fixture
def seen(monkeypatch) -> list[int]:
    """How many pictures went through a network, batch by batch."""
    batches: list[int] = []
    forward = Embedder.forward

    def counted(self, images):
        batches.append(len(images))
        return forward(self, images)

    monkeypatch.setattr(Embedder, "forward", counted)
    return batches


def more(root: Path, *names: str, each: int = 2) -> Path:
    for number, name in enumerate(names):
        for i in range(each):
            miniatures.picture(root / name / f"{i}.png", seed=1000 + 10 * number + i, size=(20, 20))
    return root


def test_the_own_gallery_holds_every_picture_and_is_embedded_once(run, seen):
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


def test_what_is_added_and_removed_leaves_the_rest_as_it_is(run, tmp_path, seen):
    model = iaa.load(run)
    first = iaa.Gallery.open(model)
    seen.clear()
    extra = more(tmp_path / "extra", "bee", "wasp")
    second = first.add(model, extra)
    assert sum(seen) == 4
    assert len(second) == 34
    assert len(first) == 30  # a snapshot stays what it was
    kept = {name: row for row, name in enumerate(second.data.ids)}
    assert torch.equal(second.data.z[[kept[name] for name in first.data.ids]], first.data.z)
    seen.clear()
    third = second.remove(model, "bee")
    assert sorted(third.classes)[:2] == ["c0", "c1"]
    assert "bee" not in third.classes
    path = third.data.ids[0]
    fourth = third.remove(model, path)
    assert path not in fourth.data.ids
    assert Path(path).exists()
    assert seen == []
    fifth = iaa.Gallery.open(model)  # all of it is kept
    assert fifth.data.ids == fourth.data.ids
    assert len(fifth.add(model, extra)) == 33  # who is added again is back
    assert sum(seen) == 2
    assert len(iaa.Gallery.open(model, remove=[str(extra)])) == 29
    with pytest.raises(ValueError, match=r"no class, no picture and no added folder 'c7' \(did you mean 'c"):
        fifth.remove(model, "c7")
    with pytest.raises(FileNotFoundError, match="no picture"):
        fifth.add(model, tmp_path / "nothing")


def test_a_folder_is_followed_new_changed_and_vanished_pictures(run, tmp_path, seen):
    model, spec = iaa.load(run), f"folder:{more(tmp_path / 'own', 'ant', 'bee', each=3)}"
    gallery = iaa.Gallery.open(model, spec)
    assert [len(rows) for rows in gallery.classes.values()] == [3, 3]
    seen.clear()
    miniatures.picture(tmp_path / "own" / "cat" / "0.png", seed=5, size=(20, 20))
    (tmp_path / "own" / "bee" / "2.png").unlink()
    changed = tmp_path / "own" / "ant" / "1.png"
    miniatures.picture(changed, seed=77, size=(20, 20))
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
    assert boxes.picture(1).box.tolist() == [10, 0, 20, 20]
    assert not torch.allclose(boxes.data.z[0], boxes.data.z[1])
    with pytest.raises(ValueError, match="the gallery must be one of"):
        iaa.Gallery.open(model, "somewhere")


def test_unreadable_pictures_are_left_out_named_and_not_tried_again(run, tmp_path, seen):
    model, root = iaa.load(run), more(tmp_path / "own", "ant", "bee")
    (root / "ant" / "bad.png").write_bytes(b"nothing")
    gallery = iaa.Gallery.open(model, f"folder:{root}")
    assert len(gallery) == 4
    assert [Path(name).name for name in gallery.left_out] == ["bad.png"]
    seen.clear()
    assert len(iaa.Gallery.open(model, f"folder:{root}")) == 4
    assert seen == []
    miniatures.picture(root / "ant" / "bad.png", size=(20, 20))
    os.utime(root / "ant" / "bad.png", (time.time() + 5, time.time() + 5))
    assert len(iaa.Gallery.open(model, f"folder:{root}")) == 5
    (tmp_path / "worse" / "x").mkdir(parents=True)
    (tmp_path / "worse" / "x" / "bad.png").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"the gallery would be empty.*bad\.png"):
        iaa.Gallery.open(model, f"folder:{tmp_path / 'worse'}")


def test_without_its_pictures_a_kept_gallery_still_answers(run, tmp_path):
    model, root = iaa.load(run), more(tmp_path / "own", "ant", "bee")
    before = iaa.Gallery.open(model, f"folder:{root}")
    root.rename(tmp_path / "elsewhere")
    after = iaa.Gallery.open(model, f"folder:{root}")
    assert after.data.ids == before.data.ids
    assert "does not exist" in after.notes[0]
    assert after.picture(0) is None


def test_another_network_embeds_everything_anew(run, seen):
    from safetensors.torch import load_file, save_file

    iaa.Gallery.open(iaa.load(run))
    state = load_file(run / "model.safetensors")
    save_file({key: value * 1.5 for key, value in state.items()}, run / "model.safetensors")
    seen.clear()
    gallery = iaa.Gallery.open(model := iaa.load(run))
    assert sum(seen) == 30
    assert "model has changed" in gallery.notes[0]
    torch.testing.assert_close(gallery.data.z, model.embed(gallery.data.ids))


def test_a_damaged_gallery_file_is_refused_by_name(run):
    model = iaa.load(run)
    gallery = iaa.Gallery.open(model)
    whole = gallery.file.read_bytes()
    for content in (whole[:-9], pickle.dumps({"z": 1})):
        gallery.file.write_bytes(content)
        with pytest.raises(ValueError, match=r"own\.safetensors .*: delete it to have it made again"):
            iaa.Gallery.open(model)
    data = Embeddings(torch.randn(3, 8), torch.arange(3), meta=gallery.data.meta | {"gallery": 99})
    data.save(gallery.file)
    with pytest.raises(
        ValueError, match=r"own\.safetensors is a gallery of version 99, this program reads 1"
    ):
        iaa.Gallery.open(model)
    Embeddings(torch.randn(3, 5), torch.arange(3), meta=gallery.data.meta).save(gallery.file)
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
    with pytest.raises(ValueError, match="only galleries kept beside a run can be changed"):
        iaa.Gallery.open(model, str(run / "embeddings.safetensors"), remove=["c1"])
    with pytest.raises(ValueError, match=r"holds vectors of 8 dimensions, the query has shape \(1, 3\)"):
        gallery.search(torch.zeros(1, 3))


KILLED = """
import sys, iaa
from iaa.search import embedding
embedding.SAVE_EVERY = 64
iaa.Gallery.open(iaa.load(sys.argv[1]), "folder:" + sys.argv[2],
                 on_progress=lambda done, total: print(done, flush=True))
"""


def test_killed_in_the_middle_the_old_gallery_stays_and_the_rest_is_done_later(
    run, tmp_path, seen, monkeypatch
):
    from iaa.search import embedding

    root, model = more(tmp_path / "own", "ant", "bee"), iaa.load(run)
    old = iaa.Gallery.open(model, f"folder:{root}")
    picture = (root / "ant" / "0.png").read_bytes()
    for number in range(700):
        (root / "bee" / f"more {number}.png").write_bytes(picture)
    words = [sys.executable, "-c", KILLED, str(run), str(root)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while int(process.stdout.readline()) < 192:
        pass
    process.kill()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    assert Embeddings.load(old.file).ids == old.data.ids
    (old.file.parent / f".{old.file.stem}-x1.safetensors").write_bytes(b"half")  # as a kill may leave it
    seen.clear()
    monkeypatch.setattr(embedding, "SAVE_EVERY", 64)
    new = iaa.Gallery.open(model, f"folder:{root}")
    assert len(new) == 704
    assert 0 < sum(seen) <= 700 - 128
    torch.testing.assert_close(new.data.z, model.embed(new.data.ids), rtol=1e-5, atol=1e-5)
    left = sorted(file.suffix for file in old.file.parent.iterdir())
    assert left == [".lock", ".safetensors"]


def test_a_reader_meets_the_old_gallery_or_the_new_one_never_a_mixture(run):
    model = iaa.load(run)
    whole = iaa.Gallery.open(model)
    source = Path(whole.data.ids[0]).parents[1]

    def change() -> None:
        for _ in range(15):
            iaa.Gallery.open(model, remove=["c1"])
            iaa.Gallery.open(model, add=[source])

    by_name = dict(zip(whole.data.ids, whole.data.z, strict=True))
    met = set()
    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change)
        while not changing.done():
            data = Embeddings.load(whole.file)
            met.add(len(data))
            torch.testing.assert_close(data.z, torch.stack([by_name[name] for name in data.ids]))
        changing.result()
    assert met == {25, 30}
    torch.testing.assert_close(whole.data.z, model.embed(whole.data.ids))  # the first one can still be read


HOLDS = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_while_another_process_renews_it_the_old_one_answers(run, tmp_path):
    model, root = iaa.load(run), more(tmp_path / "own", "ant", "bee")
    gallery = iaa.Gallery.open(model, f"folder:{root}")
    more(root, "cat")
    words = [sys.executable, "-c", HOLDS, str(gallery.file.with_suffix(".lock"))]
    other = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    old = iaa.Gallery.open(model, f"folder:{root}")
    assert old.data.ids == gallery.data.ids
    assert "another process is renewing" in old.notes[0]
    with pytest.raises(OSError, match="is being changed by another process"):
        old.remove(model, "ant")
    other.communicate("")
    assert len(iaa.Gallery.open(model, f"folder:{root}")) == 6
