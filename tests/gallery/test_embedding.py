"""Embeddings that training has left in a run fill its galleries, unless an image or the model has changed."""

import os
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

import iaa
import tiny_datasets
import tiny_runs
from iaa.config import Images, Network
from iaa.models import build
from iaa.runs import TRAINING


@pytest.fixture
def run(tmp_path) -> iaa.Run:
    """A run that has compared heads on 60 images; its features were embedded for that."""
    root, weights = tiny_runs.images(tmp_path / "data", alike=True), tmp_path / "w.safetensors"
    save_file(dict(build("convnet", dim=None).backbone.state_dict()), weights)
    config = tiny_runs.tiny(root, tmp_path / "runs", effort="quick", network=Network(weights=str(weights)))
    return iaa.train(config, quiet=True)


def check(gallery: iaa.Gallery) -> None:
    """Every vector is that of its image as it is now."""
    assert gallery.model is not None
    torch.testing.assert_close(gallery.data.z, gallery.model.embed(gallery.data.ids), rtol=1e-4, atol=1e-5)


def test_the_first_gallery_of_a_run_embeds_nothing(run, tmp_path, seen):
    seen.clear()
    gallery = iaa.Gallery.open(run.model)
    assert len(iaa.Gallery.open(run.model, f"folder:{tmp_path / 'data'}")) == len(gallery) == 60
    assert seen == []
    check(gallery)


def test_changed_and_new_images_are_embedded(run, tmp_path, seen):
    data = tmp_path / "data"
    tiny_datasets.image(data / "c0" / "0.png", seed=9, size=(20, 20))
    tiny_datasets.image(data / "c1" / "new.png", seed=10, size=(20, 20))
    (data / "c2" / "1.png").unlink()
    same_size = data / "c3" / "2.png"
    before, content = same_size.stat(), (data / "c4" / "2.png").read_bytes()
    same_size.write_bytes(content[: before.st_size].ljust(before.st_size, b"\0"))
    assert same_size.stat().st_size == before.st_size
    os.utime(same_size, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    seen.clear()
    gallery = iaa.Gallery.open(run.model)
    assert sum(seen) == 3
    assert len(gallery) == 60
    check(gallery)


@pytest.mark.parametrize("change", ["weights", "size", "flip", "precision", "damage"])
def test_another_model_embeds_all_images(run, seen, change):
    options = {"flip": True} if change == "flip" else {"precision": "bf16"} if change == "precision" else {}
    if change == "size":
        (run / "config.json").write_text(replace(run.config, images=Images(size=20)).to_json())
    model = iaa.load(run, **options)
    if change == "weights":
        next(model.network.parameters()).data.mul_(1.5)
    if change == "damage":
        (run / TRAINING).write_bytes((run / TRAINING).read_bytes()[:-9])
        (run / "embeddings.safetensors").unlink()
    seen.clear()
    assert len(iaa.Gallery.open(model)) == 60
    assert sum(seen) == 60
