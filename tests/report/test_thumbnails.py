import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import hostile_gallery
import tiny_datasets
from iaa.report.thumbnails import Thumbnails, sprite


@pytest.fixture
def folder(tmp_path):
    hostile_gallery.embeddings(tmp_path, classes=5, each=2)
    return tmp_path


def opened(uri):
    return np.array(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB")).astype(
        int
    )


def test_images_are_found_by_path_or_below_a_folder(folder):
    thumbnails = Thumbnails([folder])
    assert thumbnails.path("2/0.png") == folder / "2/0.png"
    assert thumbnails.path(str(folder / "2/0.png")) == folder / "2/0.png"
    assert thumbnails.path("7/0.png") is None
    assert thumbnails.path("17") is None  # a row number is no image
    pixels = opened(thumbnails.uri("2/0.png"))
    assert pixels.shape == (12, 12, 3)  # square, not enlarged
    assert np.abs(pixels - hostile_gallery.colour(2)).max() < 12


def test_a_box_is_cut_out(tmp_path):
    pixels = np.zeros((20, 20, 3), dtype=np.uint8)
    pixels[5:9, 10:14] = (255, 0, 0)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    cut = opened(Thumbnails([tmp_path]).uri("a.png#xywh=10,5,4,4"))
    assert cut.shape == (4, 4, 3)
    assert np.abs(cut - (255, 0, 0)).max() < 12


def test_broken_and_missing_images_are_none(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    thumbnails = Thumbnails([tmp_path])
    assert thumbnails.uri("broken.png") is None
    assert thumbnails.uri("missing.png") is None
    assert thumbnails.pixels("missing.png", 8) is None


def test_pixels_have_the_side_asked_for(folder):
    pixels = Thumbnails([folder]).pixels("3/1.png", 8)
    assert pixels.shape == (3, 8, 8)
    assert tuple(pixels[:, 4, 4].tolist()) == hostile_gallery.colour(3)


def test_a_sheet_holds_every_image_at_its_place(folder):
    ids = ["0/0.png", "missing.png", "3/0.png"]
    uri, across = sprite(Thumbnails([folder]), ids, side=10)
    assert across == 3
    sheet = opened(uri)
    assert sheet.shape == (10, 30, 3)
    for place, expected in (
        (0, hostile_gallery.colour(0)),
        (1, (255, 255, 255)),
        (2, hostile_gallery.colour(3)),
    ):
        assert np.abs(sheet[5, 10 * place + 5] - expected).max() < 25
    assert sprite(Thumbnails([folder]), ["missing.png"], side=10) is None


def test_data_that_moved_is_found_below_its_new_folder(tmp_path):
    tiny_datasets.image(tmp_path / "new" / "k4" / "0.png", seed=1, size=(8, 8))
    moved = Thumbnails([tmp_path / "new"])
    assert moved.path("gone/k4/0.png") == tmp_path / "new" / "k4" / "0.png"
    assert moved.path("/far/away/gone/k4/0.png#xywh=0,0,4,4") == tmp_path / "new" / "k4" / "0.png"
    assert moved.path("gone/k5/0.png") is None


def test_an_id_may_be_any_text(tmp_path):
    assert Thumbnails([tmp_path]).path("A review. " + "So long. " * 100) is None


def test_the_folders_come_before_wherever_one_stands(folder, tmp_path, monkeypatch):
    for place in ("here", "there"):
        (tmp_path / place / "c").mkdir(parents=True)
        (tmp_path / place / "c" / "0.png").touch()
    monkeypatch.chdir(tmp_path / "here")
    assert Thumbnails([tmp_path / "there"]).path("c/0.png") == tmp_path / "there" / "c" / "0.png"
    assert Thumbnails([]).path("c/0.png") == Path("c/0.png")
