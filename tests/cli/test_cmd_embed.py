import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image

import tiny_datasets
from iaa.cli import main
from iaa.data.image_dataset import transform
from iaa.models import Embedder, build
from iaa.retrieval.embeddings import Embeddings

TINY = ["--model", "convnet", "--size", "16", "--workers", "0"]


def folder(root: Path, *, classes: int = 4, each: int = 3) -> str:
    for label in range(classes):
        for i in range(each):
            tiny_datasets.image(
                root / "test" / f"class {label}" / f"{i}.png", seed=9 * label + i, size=(8, 8)
            )
    return f"folder:{root}"


def embed(spec: str, out: Path, *words: str) -> int:
    return main(["embed", spec, "--out", str(out), *TINY, *words])


def test_a_file_holds_what_the_network_says_and_where_it_came_from(tmp_path, capsys):
    root = tiny_datasets.cub(tmp_path / "data")
    out = tmp_path / "x.safetensors"
    assert embed("cub", out, "--root", str(root), "--split", "all", "--batch-size", "5") == 0
    data = Embeddings.load(out)
    torch.manual_seed(0)
    network = build("convnet", dim=None, size=16).eval()
    prepare = transform(False, **network.preprocessing)
    with torch.inference_mode():
        literal = [network(prepare(Image.open(root / name))[None])[0] for name in data.ids]
    torch.testing.assert_close(data.z, torch.stack(literal), rtol=1e-4, atol=1e-5)
    assert data.ids[0] == "CUB_200_2011/images/001.Albatross/bird_0.jpg"
    assert data.split == ["train"] * 6 + ["test"] * 6
    assert [data.class_names[label] for label in data.labels[[0, -1]].tolist()] == [
        "001.Albatross",
        "200.Yellowthroat",
    ]
    assert data.meta["model"] == "convnet"
    assert data.meta["weights"] == "random"
    assert data.meta["preprocessing"]["size"] == 16
    assert data.meta["counts"] == {"images": 12, "classes": 4, "left_out": 0}
    assert data.meta["versions"]["torch"] == torch.__version__
    assert [file.name for file in tmp_path.iterdir() if file != root] == ["x.safetensors"]
    told = capsys.readouterr()
    assert "12 images of 4 classes, 256 numbers each" in told.out
    assert re.search(r"12 images embedded now, [\d.,]+ images per second \(fp32 on cpu\)", told.out)
    assert told.err.splitlines() == ["note: the weights of convnet are random: --weights FILE gives others"]


def test_killed_in_the_middle_it_does_the_rest_and_the_file_is_the_same(tmp_path, seen, capsys):
    spec = folder(tmp_path / "data", classes=5, each=1)
    for copy in range(1, 16):
        for first in (tmp_path / "data").glob("test/*/0.png"):
            (first.parent / f"{copy}.png").write_bytes(first.read_bytes())
    options = ["--batch-size", "1", "--save-every", "2"]
    whole, broken = tmp_path / "whole.safetensors", tmp_path / "broken.safetensors"
    parts = tmp_path / "broken.safetensors.parts"
    words = ["-m", "iaa", "embed", spec, "--out", str(broken), *TINY, *options]
    threads = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}  # sums depend on their number
    process = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, env=threads)
    while len(list(parts.glob("0*.safetensors"))) < 2 and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.stderr.close()
    saved = max(int(part.stem.partition("-")[2]) for part in parts.glob("0*.safetensors"))
    assert 0 < saved < 80
    assert not broken.exists()

    assert embed(spec, broken, *options) == 0
    assert sum(seen) == 80 - saved
    assert f"continuing: {saved} of 80 images are done" in capsys.readouterr().err
    assert not parts.exists()
    seen.clear()
    assert embed(spec, whole, *options) == 0
    assert sum(seen) == 80
    assert broken.read_bytes() == whole.read_bytes()


def test_ctrl_c_keeps_every_finished_batch_and_says_how_to_continue(tmp_path, seen, monkeypatch, capsys):
    spec, out = folder(tmp_path / "data"), tmp_path / "x.safetensors"
    counted = Embedder.forward

    def interrupted(self, images):
        if sum(seen) == 8:
            raise KeyboardInterrupt
        return counted(self, images)

    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "forward", interrupted)
        assert embed(spec, out, "--batch-size", "4") == 130
    message = "stopped by Ctrl-C; 8 of 12 images are kept, the same command continues there"
    assert message in capsys.readouterr().err
    assert embed(spec, out, "--batch-size", "4") == 0
    assert seen == [4, 4, 4]


def test_unfinished_work_of_another_configuration_is_not_mixed_in(tmp_path, monkeypatch, capsys):
    spec, out = folder(tmp_path / "data"), tmp_path / "x.safetensors"
    _stopped_after(4, spec, out, monkeypatch)
    capsys.readouterr()
    assert embed(spec, out, "--batch-size", "4", "--precision", "bf16") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "precision was 'fp32', is 'bf16'" in error
    assert "--restart" in error
    assert embed(spec, out, "--batch-size", "4", "--precision", "bf16", "--restart") == 0
    assert Embeddings.load(out).meta["precision"] == "bf16"


def test_a_damaged_part_is_made_again(tmp_path, monkeypatch, seen):
    spec, out = folder(tmp_path / "data"), tmp_path / "x.safetensors"
    _stopped_after(8, spec, out, monkeypatch)
    (part,) = (tmp_path / "x.safetensors.parts").glob("0*.safetensors")
    part.write_bytes(part.read_bytes()[:-10])
    seen.clear()
    assert embed(spec, out, "--batch-size", "4") == 0
    assert seen == [4, 4, 4]


def test_an_existing_file_is_kept_unless_forced(tmp_path, seen, capsys):
    spec, out = folder(tmp_path / "data"), tmp_path / "x.safetensors"
    assert embed(spec, out) == 0
    assert embed(spec, out) == 0
    assert "already holds these embeddings" in capsys.readouterr().out
    assert sum(seen) == 12
    before = out.read_bytes()
    assert embed(spec, out, "--seed", "1") == 2
    assert "exists and holds something else: --force replaces it" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert embed(spec, out, "--seed", "1", "--force") == 0
    assert out.read_bytes() != before
    out.write_text("my thesis")
    assert embed(spec, out) == 2
    assert out.read_text() == "my thesis"


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path, seen, capsys):
    spec, out = folder(tmp_path / "data", each=8), tmp_path / "x.safetensors"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    options = ["--batch-size", "8", "--save-every", "8"]  # a part is 8 kB, the whole file 32 kB
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (16_000, hard))
        assert embed(spec, out, *options) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"cannot write {out}: " in error
    assert "32 of 32 images are kept" in error
    assert not out.exists()
    seen.clear()
    assert embed(spec, out, *options) == 0
    assert seen == []
    assert len(Embeddings.load(out)) == 32


def test_a_place_that_cannot_be_written_is_said_before_the_work(tmp_path, seen, capsys):
    (tmp_path / "file").write_text("")
    assert embed(folder(tmp_path / "data"), tmp_path / "file" / "x.safetensors") == 2
    assert "cannot use" in capsys.readouterr().err
    assert seen == []


def test_an_unreadable_image_stops_by_name_or_is_left_out_by_name(tmp_path, capsys):
    spec, out = folder(tmp_path / "data"), tmp_path / "x.safetensors"
    (tmp_path / "data/test/class 1/2.png").write_text("no image")
    late = tmp_path / "data/test/class 2/0.png"  # sound at both ends, broken within
    tiny_datasets.image(late, size=(64, 64))
    late.write_bytes(late.read_bytes()[:2000] + bytes(3000) + late.read_bytes()[5000:])
    assert embed(spec, out) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "class 1/2.png: not an image" in error
    assert "--on-bad-image skip" in error
    assert embed(spec, out, "--on-bad-image", "skip", "--batch-size", "1") == 0
    told = capsys.readouterr().out
    assert "class 1/2.png: not an image" in told
    assert f"left out {late}: " in told
    data = Embeddings.load(out)
    assert len(data) == 10
    assert "test/class 2/0.png" not in data.ids
    assert data.meta["counts"]["left_out"] == 2


def test_the_three_test_sets_of_vehicleid_become_one_table(tmp_path, seen, capsys):
    root = tiny_datasets.vehicleid(tmp_path / "data")
    out = tmp_path / "vehicles"
    assert embed("vehicleid", out, "--root", str(root)) == 0
    names = {f"embeddings-{size}.safetensors" for size in ("small", "medium", "large")}
    assert {file.name for file in out.iterdir()} == names
    assert sum(seen) == 12  # the small sets are contained in the large one
    small, large = (Embeddings.load(out / f"embeddings-{size}.safetensors") for size in ("small", "large"))
    assert (len(small), len(large)) == (6, 12)
    where = [large.ids.index(name) for name in small.ids]
    assert torch.equal(small.z, large.z[where])
    capsys.readouterr()
    assert main(["evaluate", str(out), "--ks", "1"]) == 0
    table = capsys.readouterr().out
    assert [word for word in ("small", "medium", "large") if word in table] == ["small", "medium", "large"]
    assert embed("vehicleid", tmp_path / "s.safetensors", "--root", str(root), "--test-size", "small") == 0
    assert len(Embeddings.load(tmp_path / "s.safetensors")) == 6


def test_boxes_cut_out_of_one_image_stay_apart(tmp_path):
    tiny_datasets.image(tmp_path / "data/street.png", size=(40, 20))
    (tmp_path / "data/cars.csv").write_text(
        "path,label,split,x_1,y_1,x_2,y_2\nstreet.png,a,test,0,0,20,20\nstreet.png,b,test,20,0,40,20\n"
    )
    out = tmp_path / "x.safetensors"
    assert embed(f"table:{tmp_path / 'data/cars.csv'}", out) == 0
    data = Embeddings.load(out)
    assert data.ids == ["street.png#xywh=0,0,20,20", "street.png#xywh=20,0,20,20"]
    assert not torch.equal(data.z[0], data.z[1])


def test_heads_and_weights_from_a_file(tmp_path, capsys):
    spec, out, file = folder(tmp_path / "data"), tmp_path / "x.safetensors", tmp_path / "w.pth"
    trained = build("convnet", dim=6)
    torch.save(trained.state_dict(), file)
    assert embed(spec, out, "--dim", "6", "--weights", str(file)) == 0
    assert capsys.readouterr().err == ""
    data = Embeddings.load(out)
    assert data.z.shape == (12, 6)
    assert data.meta["weights"] == str(file)
    torch.save(trained.backbone.state_dict(), file)
    assert embed(spec, tmp_path / "y.safetensors", "--dim", "6", "--weights", str(file)) == 0
    assert "the head of 6 is random" in capsys.readouterr().err
    assert Embeddings.load(tmp_path / "y.safetensors").meta["weights"] == f"{file}, random head"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "x.npz"], "--out must name a .safetensors file, got x.npz"),
        (["--split", "train"], "has no images in its train part"),
        (["--model", "convnt"], "did you mean 'convnet'"),
        (["--device", "warp"], "device must be one of 'auto', 'cpu', 'cuda', 'cuda:1', 'mps'; got 'warp'"),
        (["--batch-size", "0"], "batch_size must be 1 or more, got 0"),
        (["--test-size", "small"], "size belongs to vehicleid"),
    ],
)
def test_errors_are_one_line(tmp_path, words, message, capsys):
    assert embed(folder(tmp_path / "data", each=1), tmp_path / "x.safetensors", *words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") - error.count("note: ") == 1
    assert not (tmp_path / "x.safetensors").exists()


def _stopped_after(number: int, spec: str, out: Path, monkeypatch) -> None:
    forward, done = Embedder.forward, []

    def interrupted(self, images):
        if sum(done) == number:
            raise KeyboardInterrupt
        done.append(len(images))
        return forward(self, images)

    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "forward", interrupted)
        assert embed(spec, out, "--batch-size", "4") == 130
