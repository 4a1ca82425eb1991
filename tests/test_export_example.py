"""The example that searches with an exported file alone."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import iaa
import tiny_server
from iaa.data.image_dataset import transform
from iaa.export import export_run
from iaa.export.onnx_graph import Exportable, write_graph
from iaa.models import build
from iaa.models.heads import VectorHead

EXAMPLE = Path(__file__).parents[1] / "examples" / "onnx_search.py"


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    return tiny_server.trained(tmp_path_factory.mktemp("export"))


@pytest.fixture(scope="module")
def exported(images) -> Path:
    export_run.export_onnx(iaa.load(images, device="cpu"), images / "model.onnx")
    return images / "model.onnx"


@pytest.mark.parametrize("aspect", ["squeeze", "keep"])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_the_example_prepares_images_as_the_run_does(tmp_path, aspect, interpolation):
    """Photos on their side, palettes and transparency included."""
    prepare = runpy.run_path(str(EXAMPLE))["prepare"]
    network = build("convnet", dim=8, size=48)
    own = {**network.preprocessing, "aspect": aspect, "interpolation": interpolation}
    step = transform(False, **own)
    wanted = Exportable(network, own).input_of_file()
    smooth = np.add.outer(np.linspace(0, 120, 90), np.linspace(0, 120, 151))[:, :, None] + [0, 9, 15]
    photo = Image.fromarray(smooth.astype(np.uint8))
    turned = Image.Exif()
    turned[0x0112] = 6
    photo.save(tmp_path / "a.jpg", exif=turned)
    photo.resize((1510, 900)).save(tmp_path / "large.jpg")
    clear = photo.convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(photo.size))
    clear.save(tmp_path / "b.png")
    photo.quantize(64).save(tmp_path / "c.png")
    for file in sorted(tmp_path.iterdir()):
        ours = step.prepare(
            torch.from_numpy(np.array(iaa.data.image_io.read(str(file), at_least=step.at_least))).permute(
                2, 0, 1
            )
        )
        theirs = prepare(file, wanted)
        assert theirs.shape == (48, 48, 3)
        assert np.abs(ours.permute(1, 2, 0).numpy().astype(int) - theirs).max() <= 3, file.name


def test_the_example_finds_the_same_without_this_package(images, exported, tmp_path):
    folder = images.parents[1] / "images"
    query = folder / "light blue" / "2.png"
    code = (
        "import runpy, sys\n"
        f"runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')\n"
        "heavy = [name for name in ('iaa', 'torch', 'torchvision', 'scipy') if name in sys.modules]\n"
        "print(heavy)"
    )
    words = [sys.executable, "-W", "error", "-c", code, str(exported), str(folder), str(query)]
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=clean, cwd=tmp_path)
    *lines, heavy = done.stdout.splitlines()
    assert heavy == "[]"
    assert lines[0] == f"1.000  {query}"
    model = iaa.load(images, device="cpu")
    gallery = iaa.Gallery.open(model)
    (hits,) = gallery.search(model.embed([query]), top=5)
    assert [line[7:] for line in lines] == [hit.id for hit in hits]
    for line, hit in zip(lines, hits, strict=True):
        assert float(line[:5]) == pytest.approx(hit.similarity, abs=0.002)


def test_errors_of_the_example_are_one_line(images, exported, tmp_path, monkeypatch, capsys):
    folder, empty, text = images.parents[1] / "images", tmp_path / "empty", tmp_path / "text.jpg"
    empty.mkdir()
    text.write_text("just words")
    vectors = tmp_path / "vectors.onnx"
    write_graph(Exportable(VectorHead(4, dim=2).eval(), None, 4), vectors, about={})
    query = folder / "light blue" / "2.png"
    for words, message in (
        ([], "usage: "),
        ([exported, folder], "usage: "),
        ([tmp_path / "no.onnx", folder, query], "no.onnx is no ONNX file that can be opened"),
        ([text, folder, query], "text.jpg is no ONNX file that can be opened"),
        ([vectors, folder, query], "takes vectors, not images"),
        ([exported, tmp_path / "no", query], f"there is no folder {tmp_path / 'no'}"),
        ([exported, empty, query], f"{empty} holds no images"),
        ([exported, folder, tmp_path / "no.jpg"], f"{tmp_path / 'no.jpg'} cannot be read"),
        ([exported, folder, text], f"{text} cannot be read"),
    ):
        monkeypatch.setattr(sys, "argv", ["onnx_search.py", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(EXAMPLE), run_name="__main__")
        assert message in ended.value.code
        assert "\n" not in ended.value.code
    Image.open(query).save(tmp_path / "good.png")
    monkeypatch.setattr(sys, "argv", ["onnx_search.py", str(exported), str(tmp_path), str(query)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    out, err = capsys.readouterr()
    assert out == f"1.000  {tmp_path / 'good.png'}\n"
    assert err == f"left out: {text} cannot be read: cannot identify image file '{text}'\n"
