"""What is exported says what the run says, alone; what does not is not written."""

import json
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch

import iaa
import tiny_runs
import tiny_server
from iaa.config import Network, RunOptions
from iaa.data.image_dataset import transform
from iaa.export import export_run, onnx_check
from iaa.export.onnx_graph import Exportable, write_graph
from iaa.inference import Model
from iaa.models import build
from iaa.retrieval.embeddings import Embeddings
from iaa.train import train


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    return tiny_server.trained(tmp_path_factory.mktemp("export"))


@pytest.fixture(scope="module")
def exported(images) -> Path:
    export_run.export_onnx(iaa.load(images, device="cpu"), images / "model.onnx")
    return images / "model.onnx"


@pytest.fixture(scope="module")
def head(tmp_path_factory) -> Path:
    """A run that trained a head on vectors, with a hidden layer."""
    folder = tmp_path_factory.mktemp("head")
    labels = torch.arange(60) % 12
    Embeddings(torch.randn(60, 12) + 3 * torch.eye(12)[labels], labels).save(folder / "x.safetensors")
    config = tiny_runs.tiny(
        folder,
        folder / "runs",
        data=f"embeddings:{folder / 'x.safetensors'}",
        epochs=1,
        network=Network(dim=5, hidden=(7,)),
        run=RunOptions(out=str(folder / "runs"), name="head", untrained=True, logger="none"),
    )
    return train(config, quiet=True).path


def open_file(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def test_an_onnx_file_embeds_batches_of_any_size_without_this_package(images, tmp_path):
    model = iaa.load(images, device="cpu")
    result = export_run.export_onnx(model, tmp_path / "m.onnx")
    assert (result.real, result.inputs) == (8, 8)
    assert result.share < 1e-5
    session = open_file(tmp_path / "m.onnx")
    (entry,) = session.get_inputs()
    assert (entry.name, entry.type, entry.shape[1:]) == ("pixels", "tensor(uint8)", [16, 16, 3])
    step = transform(False, **model.preprocessing)
    for size in (1, 2, 7):
        pixels = torch.randint(256, (size, 3, 16, 16), dtype=torch.uint8)
        with torch.inference_mode():
            expected = model.network(step.finish(pixels))
        (z,) = session.run(["embedding"], {"pixels": pixels.permute(0, 2, 3, 1).numpy()})
        torch.testing.assert_close(torch.from_numpy(z), expected, rtol=1e-4, atol=1e-5)


def test_the_file_says_how_to_prepare_images_and_where_it_comes_from(images, exported):
    arguments = open_file(exported).get_modelmeta().custom_metadata_map
    captured = json.loads(arguments["preprocessing"])
    own = build("convnet", dim=8, size=16).preprocessing
    for key in ("size", "resize", "interpolation", "aspect"):
        assert captured[key] == own[key]
    assert captured["mean"] == list(own["mean"])
    about = json.loads(arguments["about"])
    assert about["run"] == images.name
    assert about["dim"] == 8
    assert about["test"] == json.loads((images / "metrics.json").read_text())["test"]
    onnx.checker.check_model(onnx.load(exported))
    for folder in (Path(__file__).parents[1], images.parents[1]):  # nothing of this machine
        assert str(folder).encode() not in exported.read_bytes()


@pytest.mark.parametrize(("name", "size"), [("lite0", 48), ("timm/test_vit", 160)])
def test_other_networks_and_sizes_are_exported(tmp_path, name, size):
    network = build(name, dim=6, pretrained=False, size=size).eval()
    what = Exportable(network, network.preprocessing)
    write_graph(what, tmp_path / "m.onnx", about={})
    result = onnx_check.agreement(tmp_path / "m.onnx", what, what.example(8), 0)
    assert result.share < onnx_check.TOLERANCE


def test_a_network_that_torch_cannot_export_is_reported_in_one_line(tmp_path):
    class Moody(torch.nn.Module):
        def forward(self, vectors: torch.Tensor) -> torch.Tensor:
            return vectors if vectors.sum() > 0 else -vectors

    with pytest.raises(ValueError, match="torch cannot export this network to ONNX: ") as captured:
        write_graph(Exportable(Moody(), None, 4), tmp_path / "m.onnx", about={})
    assert "\n" not in str(captured.value)


def test_a_head_takes_vectors(head, tmp_path):
    model = iaa.load(head, device="cpu")
    result = export_run.export_onnx(model, tmp_path / "m.onnx")
    assert result.share < 1e-5
    session = open_file(tmp_path / "m.onnx")
    vectors = torch.randn(4, 12)
    (z,) = session.run(["embedding"], {"vectors": vectors.numpy()})
    torch.testing.assert_close(torch.from_numpy(z), model.embed(vectors), rtol=1e-4, atol=1e-5)
    captured = json.loads(session.get_modelmeta().custom_metadata_map["preprocessing"])
    assert captured == {"input": "vectors", "type": "float32", "features": 12}


def test_a_head_whose_network_is_known_takes_images_or_vectors(images, head, tmp_path):
    base, whole = iaa.load(images, device="cpu"), iaa.load(images, device="cpu").network
    model = iaa.load(head, device="cpu")
    whole.head, whole.dim = torch.nn.Sequential(whole.head, torch.nn.Linear(8, 12), model.head), 5
    known = Model(model.path, model.config, 5, whole.eval(), model.head, base.preprocessing, model.device)
    export_run.export_onnx(known, tmp_path / "whole.onnx")
    export_run.export_onnx(known, tmp_path / "head.onnx", vectors=True)
    assert open_file(tmp_path / "whole.onnx").get_inputs()[0].name == "pixels"
    assert open_file(tmp_path / "head.onnx").get_inputs()[0].name == "vectors"
    with pytest.raises(ValueError, match="was trained on images"):
        export_run.export_onnx(base, tmp_path / "m.onnx", vectors=True)


def test_an_onnx_file_that_differs_from_pytorch_is_not_kept(images, tmp_path, monkeypatch):
    model = iaa.load(images, device="cpu")
    target = tmp_path / "m.onnx"
    target.write_bytes(b"the last good one")
    honest = export_run.write_graph

    def wrong(what, path, *, about):
        honest(Exportable(what.network, {**what.preprocessing, "mean": (0.4, 0.5, 0.5)}), path, about=about)

    monkeypatch.setattr(export_run, "write_graph", wrong)
    with pytest.raises(ValueError, match=r"differ by .* of an embedding's length .* nothing was written"):
        export_run.export_onnx(model, target)
    assert target.read_bytes() == b"the last good one"
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


def test_without_the_images_of_the_run_random_inputs_are_compared(images):
    model = iaa.load(images, device="cpu")
    what = Exportable(model.network, model.preprocessing)
    inputs, real = onnx_check.samples(what, ["/nowhere/a.png"])
    assert (inputs.shape, inputs.dtype, real) == ((8, 16, 16, 3), torch.uint8, 0)
    result = onnx_check.Agreement(1e-6, 1e-7, 3, 8)
    assert "3 of its own images and 5 random inputs, in batches of 1, 3 and 8" in str(result)


def test_a_folder_with_weights_and_card_loads_and_embeds_the_same(images, tmp_path):
    model = iaa.load(images, device="cpu")
    files = export_run.export_safetensors(model, tmp_path / "given")
    assert sorted(file.name for file in (tmp_path / "given").iterdir()) == sorted(f.name for f in files)
    again = iaa.load(tmp_path / "given", device="cpu")
    some = sorted((images.parents[1] / "images").glob("*/0.png"))
    assert torch.equal(again.embed(some), model.embed(some))
    text = (tmp_path / "given" / "README.md").read_text()
    metrics = json.loads((images / "metrics.json").read_text())
    assert f"| R@1 | {metrics['test']['test']['R@1']:.1f} | " in text
    kept = json.loads((tmp_path / "given" / "metrics.json").read_text())
    low, high = kept["intervals"]["test"]["R@1"]["over_classes"]
    assert f"| {low:.1f} – {high:.1f} |" in text
    assert "IAA: 3 synthetics per sample, strength 0.2" in text
    assert "trained on 30 samples of 6 classes" in text
    assert "`folder:images`" in text
    for file in files:
        assert str(tmp_path.parent).encode() not in file.read_bytes(), file.name


def test_the_card_of_a_head_says_what_it_takes(head, tmp_path):
    export_run.export_safetensors(iaa.load(head, device="cpu"), tmp_path / "given")
    text = (tmp_path / "given" / "README.md").read_text()
    assert '{"features": 12}' in text
    assert "z = model.embed(vectors)" in text
    assert "| vectors as given | " in text  # beside what needs no training
    again = iaa.load(tmp_path / "given", device="cpu")
    assert again.embed(torch.randn(3, 12)).shape == (3, 5)


def test_a_folder_with_other_files_is_refused(images, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds other files \(notes.txt\)"):
        export_run.export_safetensors(iaa.load(images, device="cpu"), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
