import json
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import iaa
import tiny_datasets
import tiny_runs
from iaa.cli import main
from iaa.data.image_io import UnreadableImage
from iaa.retrieval.embeddings import Embeddings


def opened(path: Path) -> Image.Image:
    with Image.open(path) as image:
        image.load()
        return image


def test_a_loaded_run_embeds_its_test_images_as_it_did_when_it_was_trained(home):
    model = iaa.load(home / "runs" / "run-1")
    kept = Embeddings.load(home / "runs" / "run-1" / "embeddings.safetensors")
    paths = [Path(kept.meta["root"]) / name for name in kept.ids]
    torch.testing.assert_close(model.embed(paths), kept.z, rtol=1e-5, atol=1e-5)
    assert model.dim == 8
    assert model.config.network.dim == 8
    assert model.folder == home / "runs" / "run-1"
    assert model.preprocessing["size"] == 16
    assert repr(model) == f"Model({str(model.path)!r}, convnet, dim=8, device='cpu')"


def test_whatever_an_image_comes_as_it_is_embedded_alike(home, tmp_path):
    model = iaa.load(home / "runs" / "run-1")
    path = home / "data" / "c3" / "1.png"
    literal = model.embed([path])
    forms = (str(path), path.read_bytes(), opened(path), np.asarray(opened(path)))
    torch.testing.assert_close(model.embed(list(forms)), literal.expand(4, -1), rtol=1e-5, atol=1e-6)
    for form in forms:
        torch.testing.assert_close(model.embed(form), literal, rtol=0, atol=0)
    # a transparent image and one that lies on its side become what `read` makes of their files
    over = np.dstack([np.array(opened(path)), np.full((20, 20), 100, np.uint8)])
    Image.fromarray(over).save(tmp_path / "clear.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    opened(path).save(tmp_path / "turned.png", exif=exif)
    for name in ("clear.png", "turned.png"):
        file = tmp_path / name
        torch.testing.assert_close(model.embed([opened(file)]), model.embed([file]), rtol=0, atol=0)
    torch.testing.assert_close(model.embed(over), model.embed([tmp_path / "clear.png"]), rtol=0, atol=0)


@pytest.mark.parametrize("channels_last", [True, False])
def test_images_have_the_memory_format_that_the_run_was_trained_with(home, tmp_path, channels_last):
    run = shutil.copytree(home / "runs" / "run-1", tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["network"]["channels_last"] = channels_last
    (run / "config.json").write_text(json.dumps(config))
    model, seen = iaa.load(run), []
    model.network.register_forward_pre_hook(
        lambda _, given: seen.append(given[0].is_contiguous(memory_format=torch.channels_last))
    )
    model.embed([home / "data" / "c3" / "1.png"])
    iaa.Gallery.open(model)
    assert set(seen) == {channels_last}
    assert len(seen) > 1


def test_many_paths_are_embedded_as_few_are(home, monkeypatch):
    from iaa import inference as module

    model = iaa.load(home / "runs" / "run-1")
    paths = sorted((home / "data").glob("*/*.png"))
    few = model.embed(paths)
    monkeypatch.setattr(module, "MANY", 2)
    torch.testing.assert_close(model.embed(paths), few)


@pytest.mark.parametrize("several", [2, 512])
def test_unreadable_images_are_named_and_the_others_embedded(home, tmp_path, monkeypatch, several):
    from iaa import inference as module

    monkeypatch.setattr(module, "MANY", several)
    model = iaa.load(home / "runs" / "run-1")
    bad, gone = tmp_path / "bad.png", tmp_path / "gone.png"
    bad.write_bytes((home / "data" / "c0" / "0.png").read_bytes()[:200])
    good = home / "data" / "c0" / "1.png"
    z, rows, errors = model.embed_readable([bad, good, gone])
    assert rows == [1]
    torch.testing.assert_close(z, model.embed([good]))
    assert {row: Path(error.path).name for row, error in errors.items()} == {0: "bad.png", 2: "gone.png"}
    with pytest.raises(UnreadableImage, match=r"bad\.png"):
        model.embed([good, bad])
    z, rows, errors = model.embed_readable([bad])
    assert z.shape == (0, 8)
    assert list(errors) == [0]
    with pytest.raises(UnreadableImage, match="not an image"):
        model.embed(b"no image at all")


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_image_is_refused_in_words(home):
    model = iaa.load(home / "runs" / "run-1")
    with pytest.raises(ValueError, match=r"uint8 \(height, width, 3\), got int64 \(4, 4, 3\)"):
        model.embed([np.zeros((4, 4, 3), np.int64)])
    with pytest.raises(
        ValueError, match=r"embeds images \(paths, .*\), got floating numbers of shape \(2, 8\)"
    ):
        model.embed(torch.zeros(2, 8))
    with pytest.raises(TypeError, match=r"images must be paths, PIL images, .*, got int"):
        model.embed(42)
    with pytest.raises(UnreadableImage, match="it is a folder: give the images in it"):
        model.embed(home / "data")
    with pytest.raises(ValueError, match="no images to embed"):
        model.embed([])


def test_a_head_on_vectors_embeds_vectors_and_the_images_they_came_from(home):
    model = iaa.load(home / "runs" / "head-1")
    frozen = Embeddings.load(home / "frozen.safetensors")
    z = model.embed(frozen.z)
    assert z.shape == (60, 4)
    assert model.no_images == ""
    paths = [Path(frozen.meta["root"]) / name for name in frozen.ids]
    torch.testing.assert_close(model.embed(paths), z, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.embed(list(frozen.z[:3].numpy())), z[:3])
    with pytest.raises(ValueError, match=r"vectors of 256 numbers, got shape \(2, 5\)"):
        model.embed(torch.zeros(2, 5))


def test_a_head_without_its_network_refuses_images(home, tmp_path):
    frozen = Embeddings.load(home / "frozen.safetensors")
    for file in ("config.json", "model.safetensors"):
        (tmp_path / file).write_bytes((home / "runs" / "head-1" / file).read_bytes())

    def told(meta: dict) -> str:
        replace(frozen, meta=meta).save(tmp_path / "vectors.safetensors")
        config = json.loads((tmp_path / "config.json").read_text())
        config["data"] = f"embeddings:{tmp_path / 'vectors.safetensors'}"
        (tmp_path / "config.json").write_text(json.dumps(config))
        model = iaa.load(tmp_path)
        assert model.embed(frozen.z[:2]).shape == (2, 4)
        with pytest.raises(ValueError, match="embeds vectors, not images: ") as error:
            model.embed([home / "data" / "c0" / "0.png"])
        return str(error.value)

    assert "vectors.safetensors: its header does not say which network" in told({})
    assert "are not here any more, or have changed" in told(frozen.meta | {"weights": "gone.pth"})
    (tmp_path / "vectors.safetensors").unlink()
    assert "no embeddings file at" in iaa.load(tmp_path).no_images


def test_the_network_behind_an_embeddings_file(home):
    model = iaa.load(home / "frozen.safetensors")
    frozen = Embeddings.load(home / "frozen.safetensors")
    paths = [Path(frozen.meta["root"]) / name for name in frozen.ids]
    torch.testing.assert_close(model.embed(paths), frozen.z, rtol=1e-4, atol=1e-5)
    assert model.config is None
    assert model.weights == frozen.meta["weights_sha256"]
    Embeddings(torch.randn(3, 4), torch.arange(3)).save(home / "foreign.safetensors")
    with pytest.raises(ValueError, match=r"foreign\.safetensors: its header does not say which network"):
        iaa.load(home / "foreign.safetensors")


def test_a_file_that_is_not_a_model_is_refused_and_says_what_is_needed(home, run):
    image = home / "data" / "c0" / "0.png"
    with pytest.raises(ValueError, match=r"0\.png: neither a run directory nor an embeddings file") as told:
        iaa.load(image)
    assert "name the run" not in str(told.value)
    iaa.Gallery.open(iaa.load(run))
    (kept,) = (run / "galleries").glob("*.safetensors")
    for file in (run / "config.json", run / "model.safetensors", run / "embeddings.safetensors", kept):
        with pytest.raises(ValueError, match=rf"^{file}.* \(name the run directory itself: {run}\)$"):
            iaa.load(file)


def test_the_gallery_of_a_head_is_its_vectors_and_takes_images_as_well(home, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for file in ("config.json", "model.safetensors"):
        (run / file).write_bytes((home / "runs" / "head-1" / file).read_bytes())
    model, frozen = iaa.load(run), Embeddings.load(home / "frozen.safetensors")
    gallery = iaa.Gallery.open(model)
    torch.testing.assert_close(gallery.data.z, model.embed(frozen.z))
    assert gallery.image(0).path == str(home / "data" / frozen.ids[0])
    tiny_runs.images(tmp_path / "more", classes=2, each=1)
    larger = gallery.add(tmp_path / "more")
    assert len(larger) == 62
    (row,) = larger.rows_by_path[str(tmp_path / "more" / "c1" / "0.png")]
    torch.testing.assert_close(
        larger.data.z[row : row + 1], model.embed([tmp_path / "more" / "c1" / "0.png"])
    )
    projected = iaa.Gallery.open(
        model, str(home / "frozen.safetensors")
    )  # vectors the head takes go through it
    torch.testing.assert_close(projected.data.z, gallery.data.z)


def test_invalid_inputs_to_embed_are_refused(home):
    model = iaa.load(home / "runs" / "run-1")
    whole = np.zeros((9, 9, 3), dtype=np.uint8)
    for size in (0, -1):
        with pytest.raises(ValueError, match=f"batch_size must be 1 or more, got {size}"):
            model.embed([whole], batch_size=size)
        with pytest.raises(ValueError, match=f"batch_size must be 1 or more, got {size}"):
            iaa.load(home / "runs" / "head-1").embed(torch.zeros(1, 8), batch_size=size)
    for empty in (whole[:0], whole[:, :0]):
        with pytest.raises(ValueError, match="an array must be an image of one pixel or more, got"):
            model.embed([whole, empty])


def test_embeddings_can_be_normalised_and_shown_as_they_are_made(home, monkeypatch):
    model = iaa.load(home / "runs" / "run-1")
    images = list(np.random.default_rng(0).integers(256, size=(5, 20, 20, 3), dtype=np.uint8))
    raw = model.embed(images)
    torch.testing.assert_close(model.embed(images, normalize=True), raw / raw.norm(dim=1, keepdim=True))
    bars = []

    @contextmanager
    def counting(total, *, rate, quiet):
        bars.append((total, quiet, counts := []))
        yield SimpleNamespace(advance=counts.append)

    monkeypatch.setattr("iaa.inference.counting", counting)
    model.embed(images, batch_size=2, progress=True)
    head = iaa.load(home / "runs" / "head-1")
    head.embed(torch.zeros(3, head.head.features))
    assert bars == [(5, False, [2, 2, 1]), (3, True, [3])]


def test_flip_averages_an_image_and_its_mirror_image(home, tmp_path, monkeypatch):
    run, path = home / "runs" / "run-1", tmp_path / "a.png"
    tiny_datasets.image(path, seed=5, size=(16, 16))
    Image.open(path).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "mirror.png")
    plain, model = iaa.load(run), iaa.load(run, flip=True)
    both = plain.embed([path, tmp_path / "mirror.png"], normalize=True)
    torch.testing.assert_close(model.embed([path])[0], both.mean(0))
    assert plain.identity != model.identity
    monkeypatch.setattr("iaa.inference._load", lambda path, device: replace(plain, network=None))
    with pytest.raises(ValueError, match="embeds vectors, which cannot be mirrored"):
        iaa.load(run, flip=True)


def test_a_file_of_flipped_images_is_searched_with_flipped_images(home, tmp_path):
    file = tmp_path / "flip.safetensors"
    words = ["embed", f"folder:{home / 'data'}", "--split", "all", "--model", str(home / "runs" / "run-1")]
    assert main([*words, "--flip", "--out", str(file)]) == 0
    data = Embeddings.load(file)
    assert data.meta["flip"] is True
    model = iaa.load(file)
    paths = [Path(data.meta["root"]) / name for name in data.ids[:3]]
    torch.testing.assert_close(model.embed(paths), data.z[:3], rtol=1e-4, atol=1e-5)
