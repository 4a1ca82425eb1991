"""How a run's data is listed and divided."""

import pytest
import torch
from PIL import Image

import iaa
from iaa.config import Config, Network, Split
from iaa.data_source import build_network, open_data


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
    source = open_data(Config(data=request.getfixturevalue(kind), split=split))
    sizes = {part: source.dataset.part(part).class_sizes().tolist() for part in ("train", "val", "test")}
    assert sizes == {"train": [2] * 6, "val": [6] * 3, "test": [6] * 3}
    assert [len(part) for part in source.tests.values()] == [18]


@pytest.mark.parametrize("ending", [".safetensors", ".npy", ".parquet"])
def test_classes_that_share_a_name_or_have_none_stay_apart(tmp_path, ending):
    names = {0: "chair", 1: "chair", 2: "table"}
    ids = [str(row) for row in range(12)]
    iaa.Embeddings(torch.randn(12, 4), torch.arange(12) % 6, ids, names).save(tmp_path / f"v{ending}")
    source = open_data(Config(data=f"embeddings:{tmp_path / f'v{ending}'}"))
    assert sorted(source.dataset.class_names) == ["3", "4", "5", "chair (0)", "chair (1)", "table"]
    assert source.dataset.class_sizes().tolist() == [2] * 6


def test_vectors_are_known_by_their_row_numbers(tmp_path):
    z = torch.randn(72, 4)
    labels = torch.arange(12).repeat_interleave(6)
    iaa.Embeddings(z, labels, ids=["same name"] * 72).save(tmp_path / "v.npz")
    config = Config(data=f"embeddings:{tmp_path / 'v.npz'}", split=Split(test_share=0.25, per_class=2))
    source = open_data(config)
    part = source.dataset.part("train")
    assert part.rows.dtype.kind == "i"
    assert torch.equal(source.training(part).vectors, z[part.rows])
    assert source.ids(part, torch.arange(3)) == ["same name"] * 3


def test_a_folder_is_listed_once_for_training_and_test_classes(folder, monkeypatch):
    from iaa.data import custom

    calls, original = [], custom.folder
    monkeypatch.setattr(custom, "folder", lambda *a, **k: calls.append(1) or original(*a, **k))
    source = open_data(Config(data=folder, model="convnet", split=Split(test_share=0.25)))
    assert len(calls) == 1
    assert len(source.tests["test"]) == 18
    assert source.dataset.part("test").paths.tolist() == source.tests["test"].paths.tolist()


def test_the_network_fits_the_data(vectors, folder):
    configs = Config(data=vectors, network=Network(dim=128)), Config(data=folder, model="convnet")
    head, network = (build_network(config, open_data(config)) for config in configs)
    assert (head.features, head.dim) == (4, 128)
    assert network.preprocessing["size"] == 48
