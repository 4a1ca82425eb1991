import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import iaa
from iaa.retrieval.embeddings import Embeddings
from tiny_folders import more

KILLED = """
import sys, iaa
from iaa.gallery import embedding
embedding.SAVE_EVERY = 64
iaa.Gallery.open(iaa.load(sys.argv[1]), "folder:" + sys.argv[2],
                 on_progress=lambda done, total: print(done, flush=True))
"""


def test_a_killed_update_keeps_the_old_gallery_and_is_resumed(run, tmp_path, seen, monkeypatch):
    from iaa.gallery import embedding

    root, model = more(tmp_path / "own", "ant", "bee"), iaa.load(run)
    old = iaa.Gallery.open(model, f"folder:{root}")
    image = (root / "ant" / "0.png").read_bytes()
    for number in range(700):
        (root / "bee" / f"more {number}.png").write_bytes(image)
    arguments = [sys.executable, "-c", KILLED, str(run), str(root)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while int(process.stdout.readline()) < 192:
        pass
    process.kill()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    assert Embeddings.load(Path(old.name)).ids == old.data.ids
    (Path(old.name).parent / f".{Path(old.name).stem}-x1.safetensors").write_bytes(
        b"half"
    )  # as a kill may leave it
    seen.clear()
    monkeypatch.setattr(embedding, "SAVE_EVERY", 64)
    new = iaa.Gallery.open(model, f"folder:{root}")
    assert len(new) == 704
    assert 0 < sum(seen) <= 700 - 128
    torch.testing.assert_close(new.data.z, model.embed(new.data.ids), rtol=1e-5, atol=1e-5)
    left = sorted(file.suffix for file in Path(old.name).parent.iterdir())
    assert left == [".lock", ".safetensors"]


def test_readers_see_the_old_gallery_or_the_new_one(run):
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
            data = Embeddings.load(Path(whole.name))
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


def test_the_old_gallery_is_searched_while_another_process_updates_it(run, tmp_path):
    model, root = iaa.load(run), more(tmp_path / "own", "ant", "bee")
    gallery = iaa.Gallery.open(model, f"folder:{root}")
    more(root, "cat")
    arguments = [sys.executable, "-c", HOLDS, str(Path(gallery.name).with_suffix(".lock"))]
    other = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    old = iaa.Gallery.open(model, f"folder:{root}")
    assert old.data.ids == gallery.data.ids
    assert "another process is updating" in old.notes[0]
    with pytest.raises(OSError, match="is being changed by another process"):
        old.remove("ant")
    other.communicate("")
    assert len(iaa.Gallery.open(model, f"folder:{root}")) == 6
