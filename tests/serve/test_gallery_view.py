import io
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import iaa
import tiny_server
from iaa.data.image_dataset import transform
from iaa.data.image_ref import ImageRef
from iaa.retrieval.embeddings import Embeddings
from iaa.serve.background import BackgroundAnalysis
from iaa.serve.decoding import prepare_upload
from iaa.serve.gallery_view import EXAMPLES, GalleryView, reduce_image


def test_gallery_images_are_sent_upright_reduced_and_without_metadata(tmp_path):
    image = Image.new("RGB", (900, 600), "red")
    image.paste("blue", (0, 0, 450, 600))
    captured = Image.Exif()
    captured[0x0112] = 6  # the camera was turned
    captured[0x010F] = "a camera with a serial number"
    image.save(tmp_path / "x.jpg", exif=captured)
    content, kind = reduce_image(ImageRef(str(tmp_path / "x.jpg")), 320)
    assert kind == "image/jpeg"
    assert b"serial number" not in content
    sent = Image.open(io.BytesIO(content))
    assert max(sent.size) == 320
    assert sent.size[1] > sent.size[0]
    assert sent.getpixel((100, 20))[2] > 200  # what was left is above
    assert sent.getpixel((100, 300))[0] > 200


def test_a_box_is_cropped_and_small_images_are_not_enlarged(tmp_path):
    image = Image.new("RGB", (100, 80), "red")
    image.paste("lime", (40, 20, 60, 30))
    image.save(tmp_path / "x.png")
    content, kind = reduce_image(ImageRef(str(tmp_path / "x.png"), (40.0, 20, 60, 30)), 640)
    sent = Image.open(io.BytesIO(content))
    assert (sent.size, kind) == ((20, 10), "image/png")
    assert set(sent.convert("RGB").getcolors()) == {(200, (0, 255, 0))}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_an_upload_is_prepared_as_the_library_prepares_it(run, kind):
    model = iaa.load(run, device="cpu")
    step = transform(False, **model.preprocessing)
    out = io.BytesIO()
    Image.effect_noise((300, 200), 60).convert("RGB").save(out, kind)
    prepared = prepare_upload(out.getvalue(), step, pixels=10**6)
    with torch.inference_mode():
        z = model.network(step.finish(torch.from_numpy(prepared)[None]))
    torch.testing.assert_close(z, model.embed([out.getvalue()]), rtol=1e-4, atol=1e-5)


def gallery(sizes: list[int], folder: Path) -> iaa.Gallery:
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    z = torch.randn(len(labels), 6) + 3 * torch.eye(6)[labels % 6]
    return iaa.Gallery.from_embeddings(Embeddings(z, labels), str(folder / "x.safetensors"))


def test_a_large_class_shows_its_most_and_least_typical_images(tmp_path):
    made = gallery([150, 3], tmp_path)
    about = GalleryView(made).describe_class("0", BackgroundAnalysis(made))
    unit = torch.nn.functional.normalize(made.data.z[:150], dim=1)
    typical = unit @ torch.nn.functional.normalize(unit.sum(0), dim=0)
    values = [entry.similarity for entry in about.examples]
    assert len(values) == EXAMPLES
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(float(typical.max()), abs=1e-5)
    assert values[-1] == pytest.approx(float(typical.min()), abs=1e-5)
    assert about.images == 150
    assert [entry.label for entry in about.similar] == ["1"]


@pytest.mark.parametrize("sizes", [[4], [1, 1], [1]])
def test_a_gallery_too_small_to_analyse_is_still_served(tmp_path, sizes):
    made = gallery(sizes, tmp_path)
    analysis = BackgroundAnalysis(made)
    analysis.wait(30)
    about = GalleryView(made).describe_class("0", analysis)
    assert about.images == sizes[0]
    assert about.spread is None or sizes[0] > 1


def test_the_analysis_stops_with_the_server(tmp_path, monkeypatch):
    gate, began = threading.Event(), threading.Event()

    def slow(*_: object, **__: object) -> None:
        began.set()
        assert gate.wait(20)

    monkeypatch.setattr("iaa.serve.background.open_classifier", slow)
    analysis = BackgroundAnalysis(gallery([5, 5], tmp_path))
    assert began.wait(20)
    assert not analysis.stop(0.05)  # it cannot be captured to, just now
    gate.set()
    assert analysis.stop(20)
    assert analysis.classes == {}  # and it has not gone on


def test_a_run_on_vectors_is_served_without_images(tmp_path):
    import tiny_runs
    from iaa.config import Network
    from iaa.train import train

    labels = torch.arange(60) % 12
    Embeddings(torch.randn(60, 12) + 3 * torch.eye(12)[labels], labels).save(tmp_path / "x.safetensors")
    data = f"embeddings:{tmp_path / 'x.safetensors'}"
    run = train(
        tiny_runs.tiny(tmp_path, tmp_path / "runs", data=data, epochs=1, network=Network(dim=5)), quiet=True
    ).path
    with tiny_server.served(tiny_server.service(run)) as base:
        health = tiny_server.httpx.get(f"{base}/api/health", timeout=30).json()
        assert health["takes_images"] is False
        assert health["model"] == "head on vectors, 5 dimensions"
        result = tiny_server.httpx.get(f"{base}/api/search?id=0&top=4", timeout=30).json()
        assert result["query"]["image"] is None
        assert len(result["results"]) == 4
        assert tiny_server.httpx.get(f"{base}/api/images/0", timeout=30).status_code == 404
        answer = tiny_server.post(base, b"whatever")
        assert answer.status_code == 422
        assert "does not embed images" in answer.json()["error"]


def test_only_the_listed_formats_are_decoded(monkeypatch):
    monkeypatch.setattr(Image, "ID", ["PCD", *Image.ID])  # their order is that of their first use
    out = io.BytesIO()
    Image.new("L", (8, 8), 200).save(out, "TIFF")
    two = out.getvalue().ljust(2048, b"\0") + b"PCD_" + bytes(10**6)
    assert Image.open(io.BytesIO(two)).format == "PCD"  # what Pillow would take it for
    step = transform(False, size=16, resize=18)
    one = prepare_upload(out.getvalue(), step, pixels=1000)
    assert np.array_equal(prepare_upload(two, step, pixels=1000), one)


def test_the_url_of_an_image_changes_with_its_file(tmp_path):
    data = Embeddings(torch.randn(4, 6), torch.arange(4) // 2, meta={"root": "here"})
    versions = {GalleryView(iaa.Gallery.from_embeddings(data, str(tmp_path / "x.safetensors"))).version}
    moved = Embeddings(data.z, data.labels, meta={"root": "there"})
    versions.add(GalleryView(iaa.Gallery.from_embeddings(moved, str(tmp_path / "x.safetensors"))).version)
    moved.save(tmp_path / "x.safetensors")
    versions.add(GalleryView(iaa.Gallery.from_embeddings(moved, str(tmp_path / "x.safetensors"))).version)
    assert len(versions) == 3
