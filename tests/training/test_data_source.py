"""How a run's data is divided, and what it says it was made with."""

import subprocess

import pytest
import torch
from PIL import Image

import iaa
from iaa.config import Config, Split
from iaa.training import runs
from iaa.training.data_source import open_source


@pytest.fixture
def vectors(tmp_path):
    labels = torch.arange(12).repeat_interleave(6)
    iaa.Embeddings(torch.randn(72, 4), labels, ids=[str(row) for row in range(72)]).save(tmp_path / "v.npz")
    return f"embeddings:{tmp_path / 'v.npz'}"


@pytest.fixture
def folder(tmp_path):
    for number in range(12):
        place = tmp_path / "photos" / f"class{number}"
        place.mkdir(parents=True)
        for image in range(6):
            Image.new("RGB", (8, 8), (20 * number, 40 * image, 0)).save(place / f"{image}.png")
    return f"folder:{tmp_path / 'photos'}"


@pytest.mark.parametrize("kind", ["vectors", "folder"])
def test_few_samples_are_for_training_alone(kind, request):
    split = Split(test_share=0.25, val_classes=1 / 3, per_class=2)
    source, _ = open_source(Config(data=request.getfixturevalue(kind), split=split))
    sizes = {part: source.dataset.part(part).class_sizes().tolist() for part in ("train", "val", "test")}
    assert sizes == {"train": [2] * 6, "val": [6] * 3, "test": [6] * 3}
    assert [len(part) for part in source.tests.values()] == [18]


def test_a_run_is_dirty_only_if_the_package_is(tmp_path, monkeypatch):
    package = tmp_path / "src" / "iaa"
    (package / "training").mkdir(parents=True)
    (package / "__init__.py").touch()
    words = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*words, *command], check=True)
    monkeypatch.setattr(runs, "__file__", str(package / "training" / "tiny_runs.py"))
    clean = runs._commit()
    (tmp_path / "page.md").write_text("written by a run")
    assert clean
    assert runs._commit() == clean
    (package / "__init__.py").write_text("changed")
    assert runs._commit() == f"{clean}-dirty"


@pytest.mark.parametrize("ending", [".safetensors", ".npy", ".parquet"])
def test_classes_that_share_a_name_or_have_none_stay_apart(tmp_path, ending):
    names = {0: "chair", 1: "chair", 2: "table"}
    ids = [str(row) for row in range(12)]
    iaa.Embeddings(torch.randn(12, 4), torch.arange(12) % 6, ids, names).save(tmp_path / f"v{ending}")
    source, _ = open_source(Config(data=f"embeddings:{tmp_path / f'v{ending}'}"))
    assert sorted(source.dataset.class_names) == ["3", "4", "5", "chair (0)", "chair (1)", "table"]
    assert source.dataset.class_sizes().tolist() == [2] * 6
