"""A folder that grows after training: no class moves between the parts of a run, and new ones are tested."""

import json
import shutil
from dataclasses import replace

import pytest

import iaa
import tiny_datasets
import tiny_folders
import tiny_runs
from iaa.cli import main
from iaa.config import Config, RunOptions, Split
from iaa.data import load
from iaa.gallery.listing import own_images
from iaa.retrieval.embeddings import Embeddings
from iaa.runs import CHECKPOINT, METRICS, Run


def grow(root):
    """Enough new classes that the seed draws others, and a new image of every old class."""
    for folder in list(root.iterdir()):
        tiny_datasets.image(folder / "new.png", seed=7, size=(20, 20))
    tiny_folders.more(root, *(f"a{number}" for number in range(6)), each=3)


def split_of(data):
    split: dict[str, set[str]] = {}
    for name, part in zip(data.distinct_names(), data.split, strict=True):
        split.setdefault(name, set()).add(part)
    return split


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """A finished run on a folder that has grown since, and its classes."""
    base = tmp_path_factory.mktemp("grown")
    root = tiny_runs.images(base / "data")
    config = tiny_runs.tiny(root, base / "runs", epochs=1, split=Split(test_share=0.2, val_classes=0.2))
    run = iaa.train(config, quiet=True)
    before = json.loads((run / "classes.json").read_text())
    grow(root)
    return run.path, before


def test_the_run_lists_its_classes(grown):
    run, before = grown
    assert {part: len(names) for part, names in before.items()} == {"train": 6, "val": 2, "test": 2}
    assert Run(run).classes.train == tuple(before["train"])


def test_without_the_run_classes_would_move(grown):
    run, before = grown
    anew = load(Run(run).config.data, test_share=0.2).part("test")
    assert not {anew.class_names[label] for label in anew.labels} <= {
        *before["test"],
        *(f"a{n}" for n in range(6)),
    }


def test_its_data_keep_their_parts_and_new_classes_are_tested(grown):
    run, before = grown
    data = Run(run).data
    for part in ("train", "val", "test"):
        rows = data.dataset.part(part)
        names = {rows.class_names[label] for label in rows.labels}
        assert names == {*before[part], *(f"a{n}" for n in range(6) if part == "test")}
    assert sum(path.endswith("new.png") for path in data.dataset.part("train").paths) == 6


def test_embed_with_the_run_uses_its_classes(grown, tmp_path):
    run, before = grown
    spec = Run(run).config.data
    for part in ("train", "test"):
        out = tmp_path / f"{part}.safetensors"
        command = ["embed", spec, "--model", str(run), "--out", str(out), "--split", part]
        assert main([*command, "--device", "cpu"]) == 0
        names = set(Embeddings.load(out).distinct_names())
        assert names == {*before[part], *(f"a{n}" for n in range(6) if part == "test")}


def test_a_test_share_next_to_a_run_is_refused(grown, tmp_path, capsys):
    run, _ = grown
    out = str(tmp_path / "x.safetensors")
    command = ["embed", Run(run).config.data, "--model", str(run), "--out", out, "--test-share", "0.5"]
    assert main(command) != 0
    assert "--test-share" in capsys.readouterr().err


def test_the_gallery_of_search_and_serve_knows_the_parts(grown):
    run, before = grown
    listing = own_images(Run(run))
    split = dict(zip(listing.classes, listing.split, strict=True))
    assert split == {
        **{name: part for part, names in before.items() for name in names},
        **{f"a{n}": "test" for n in range(6)},
    }


def test_search_report_and_analyze_work_on_it(grown, capsys):
    run, before = grown
    folder = Run(run).config.data.partition(":")[2]
    assert main(["search", str(run), f"{folder}/a0/0.png", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gallery"]["images"] == 88
    assert main(["analyze", "correlation", str(run)]) == 0
    assert split_of(Run(run).embeddings("train")).keys() == {*before["train"]}
    assert main(["report", str(run)]) == 0
    assert main(["evaluate", str(run)]) == 0
    assert split_of(Run(run).embeddings("test")).keys() == {*before["test"]}


def test_a_resumed_run_keeps_its_classes_and_takes_new_images_of_them(tmp_path, caplog):
    root = tiny_runs.images(tmp_path / "data")
    config = tiny_runs.tiny(root, tmp_path / "runs", epochs=2)
    run = iaa.train(config, quiet=True)
    before = run.classes
    stop_after_first_epoch(run)
    grow(root)
    again = iaa.train(resume=run.path, quiet=True)
    assert again.classes == before
    assert again.metrics["train"] == {"samples": 8 * 7, "classes": 8, "tested_as_well": 0}
    assert split_of(again.embeddings("test")).keys() == {*before.test, *(f"a{n}" for n in range(6))}
    assert "epoch 2 begins again" in caplog.text


def test_a_resumed_run_needs_the_classes_it_trains_on(tmp_path, caplog):
    root = tiny_runs.images(tmp_path / "data")
    run = iaa.train(tiny_runs.tiny(root, tmp_path / "runs", epochs=1), quiet=True)
    (run / METRICS).unlink()
    shutil.move(root / run.classes.train[0], tmp_path / "gone")
    with pytest.raises(ValueError, match=f"no longer has images of '{run.classes.train[0]}'.*put them back"):
        iaa.train(resume=run.path, quiet=True)
    shutil.move(tmp_path / "gone", root / run.classes.train[0])
    tiny_folders.more(root, "a0")
    shutil.rmtree(root / run.classes.test[0])
    iaa.train(resume=run.path, quiet=True)
    assert f"no longer has images of '{run.classes.test[0]}'" in caplog.text


def test_classes_that_are_gone_are_named_when_a_run_lists_its_data_again(tmp_path, caplog):
    root = tiny_runs.images(tmp_path / "data")
    run = iaa.train(tiny_runs.tiny(root, tmp_path / "runs", epochs=1), quiet=True)
    for name in run.classes.train[:2]:
        shutil.rmtree(root / name)
    train = Run(run.path).data.dataset.part("train")
    assert len(train.class_sizes()) == 6
    assert f"no longer has images of '{run.classes.train[0]}' and 1 more" in caplog.text


def test_vectors_that_grow_keep_their_parts(tmp_path):
    root = tiny_runs.images(tmp_path / "data")
    file = tmp_path / "z.safetensors"
    embed = ["embed", f"folder:{root}", "--model", "convnet", "--no-pretrained", "--split", "all"]
    embed += ["--size", "16", "--device", "cpu", "--out", str(file), "--force"]
    main(embed)
    data = Embeddings.load(file)
    replace(data, split=["test"] * len(data)).save(file)
    options = RunOptions(out=str(tmp_path / "runs"), untrained=False, logger="none")
    run = iaa.train(Config(data=f"embeddings:{file}", epochs=1, device="cpu", run=options), quiet=True)
    before = run.classes
    grow(root)
    main(embed)
    data = Embeddings.load(file)
    replace(data, split=["test"] * len(data)).save(file)
    listing = own_images(Run(run.path))
    split = dict(zip(listing.classes, listing.split, strict=True))
    assert {name for name, part in split.items() if part == "train"} == set(before.train)
    train = Run(run.path).data.dataset.part("train")
    assert {train.class_names[label] for label in train.labels} == set(before.train)


def stop_after_first_epoch(run):
    """What an interruption in the second epoch leaves."""
    from iaa.files import read_tensors, write_tensors

    (run / METRICS).unlink()
    tensors, header = read_tensors(run / CHECKPOINT)
    position = {**json.loads(header["position"]), "epoch": 1, "step": 1}
    write_tensors(run / CHECKPOINT, tensors, {**header, "position": json.dumps(position)})
