import struct

import numpy as np
import pytest
from PIL import Image

from iaa.data import image_io
from iaa.data.image_io import UnreadableImage, as_rgb, glance, read, unreadable

RED, WHITE = (255, 0, 0), (255, 255, 255)


def corners(image):
    pixels = np.asarray(image).astype(int)
    return [tuple(pixels[y, x].tolist()) for y, x in ((0, 0), (0, -1), (-1, 0), (-1, -1))]


def red_corner(mode="RGB", size=(32, 16)):
    """White, with a red top left quarter."""
    image = Image.new("RGB", size, "white")
    image.paste(RED, (0, 0, size[0] // 2, size[1] // 2))
    return image.convert(mode)


@pytest.mark.parametrize(
    ("orientation", "red_at"), [(1, 0), (2, 1), (3, 3), (4, 2), (5, 0), (6, 1), (7, 3), (8, 2)]
)
def test_exif_orientation_is_obeyed(tmp_path, orientation, red_at):
    exif = Image.Exif()
    exif[0x0112] = orientation
    red_corner().save(tmp_path / "turned.png", exif=exif)
    image = read(str(tmp_path / "turned.png"))
    assert image.size == ((32, 16) if orientation < 5 else (16, 32))
    assert corners(image) == [RED if i == red_at else WHITE for i in range(4)]


@pytest.mark.parametrize(
    ("mode", "suffixes"),
    [
        ("RGB", ("png", "jpg", "tif", "webp", "gif", "bmp")),
        ("P", ("png", "tif", "gif", "bmp")),
        ("CMYK", ("jpg", "tif")),
        ("YCbCr", ("jpg", "tif")),
    ],
)
def test_colour_modes_come_out_as_they_look(tmp_path, mode, suffixes):
    for suffix in suffixes:
        file = tmp_path / f"image.{suffix}"
        red_corner(mode).save(file, **({"quality": 95} if suffix in ("jpg", "webp") else {}))
        image = read(str(file))
        assert image.mode == "RGB"
        np.testing.assert_allclose(corners(image), [RED, WHITE, WHITE, WHITE], atol=12)


def test_transparency_shows_the_background(tmp_path):
    image = red_corner("RGBA")
    image.putalpha(Image.new("L", image.size, 0))
    image.paste((*RED, 255), (0, 0, 16, 8))
    image.save(tmp_path / "rgba.png")
    assert corners(read(str(tmp_path / "rgba.png"))) == [RED, WHITE, WHITE, WHITE]
    assert corners(read(str(tmp_path / "rgba.png"), background="black"))[1:] == [(0, 0, 0)] * 3


def test_transparent_palette_and_grey_with_alpha(tmp_path):
    palette = red_corner("P")
    palette.save(tmp_path / "p.png", transparency=palette.getpixel((31, 15)))
    assert corners(read(str(tmp_path / "p.png"), background="blue")) == [
        RED,
        (0, 0, 255),
        (0, 0, 255),
        (0, 0, 255),
    ]
    Image.merge("LA", [Image.new("L", (4, 4), 100), Image.new("L", (4, 4), 0)]).save(tmp_path / "la.png")
    assert corners(read(str(tmp_path / "la.png"))) == [WHITE] * 4


def test_grey_and_one_bit(tmp_path):
    Image.new("L", (4, 4), 100).save(tmp_path / "grey.png")
    Image.new("1", (4, 4), 1).save(tmp_path / "bit.png")
    assert corners(read(str(tmp_path / "grey.png"))) == [(100, 100, 100)] * 4
    assert corners(read(str(tmp_path / "bit.png"))) == [WHITE] * 4


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path, suffix):
    values = np.array([[0, 257 * 100], [257 * 200, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / f"deep.{suffix}")
    assert [value for value, *_ in corners(read(str(tmp_path / f"deep.{suffix}")))] == [0, 100, 200, 255]


def test_a_box_is_cut_out(tmp_path):
    red_corner().save(tmp_path / "a.png")
    assert corners(read(str(tmp_path / "a.png"), box=(0.0, 0.0, 16.0, 8.0))) == [RED] * 4
    assert read(str(tmp_path / "a.png"), box=[float("nan")] * 4).size == (32, 16)


def test_a_large_jpeg_is_decoded_at_reduced_scale_and_looks_the_same(tmp_path):
    smooth = Image.effect_mandelbrot((1600, 1200), (-2, -1.5, 1, 1.5), 50).convert("RGB")
    smooth.save(tmp_path / "large.jpg", quality=90)
    small = read(str(tmp_path / "large.jpg"), at_least=256)
    assert small.size == (400, 300)
    whole = np.asarray(read(str(tmp_path / "large.jpg")).resize((128, 128)), dtype=float)
    assert np.abs(np.asarray(small.resize((128, 128)), dtype=float) - whole).mean() < 2


def broken(folder):
    red_corner().save(folder / "good.jpg")
    content = (folder / "good.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(content[: len(content) * 2 // 3])
    (folder / "empty.jpg").touch()
    (folder / "page.jpg").write_text("<html>404</html>")
    red_corner().save(folder / "good.png")
    (folder / "cut.png").write_bytes((folder / "good.png").read_bytes()[:60])
    return ["good.jpg", "cut.jpg", "empty.jpg", "page.jpg", "good.png", "cut.png", "missing.jpg"]


@pytest.mark.parametrize("thorough", [True, False])
def test_every_broken_image_is_found(tmp_path, thorough):
    paths = [str(tmp_path / name) for name in broken(tmp_path)]
    found = unreadable(paths, thorough=thorough)
    assert [error.path for error in found] == [path for path in paths if "good" not in path]
    assert "no such file" in str(found[-1])
    assert all("\n" not in str(error) for error in found)


def test_a_decompression_bomb_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(image_io, "MAX_PIXELS", 100)
    path = str(tmp_path / "bomb.png")
    red_corner().save(path)
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("it was decoded"))
    with pytest.raises(UnreadableImage, match=r"32 x 16 pixels are too many"):
        read(path)
    assert "too many" in str(glance(path))


@pytest.mark.parametrize("times", [1, 3])
def test_a_true_bomb_is_refused_whatever_pillow_does_about_it(tmp_path, times, monkeypatch):
    path = str(tmp_path / "bomb.png")
    Image.new("1", (1000, 100)).save(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 90_000 // times)  # warns, then raises
    with pytest.raises(UnreadableImage, match=r"bomb\.png"):
        read(path)
    assert glance(path) is not None


def test_floats_have_no_scale_and_are_refused(tmp_path):
    Image.fromarray(np.ones((2, 2), dtype=np.float32)).save(tmp_path / "f.tif")
    with pytest.raises(UnreadableImage, match="mode F"):
        read(str(tmp_path / "f.tif"))


@pytest.mark.parametrize("box", [(4, 4, 4, 8), (8, 4, 4, 8), (40, 0, 50, 8), (-9, -9, 0, 0)])
def test_a_box_with_nothing_in_it_is_reported(tmp_path, box):
    red_corner().save(tmp_path / "a.png")
    with pytest.raises(UnreadableImage, match=r"a\.png: its box .* holds nothing of an image of 32 x 16"):
        read(str(tmp_path / "a.png"), box=box)


def test_a_broken_tag_next_to_the_orientation_costs_nothing(tmp_path):
    told = Image.Exif()
    told[0x0112], told[0x011A] = 6, 1.5
    red_corner().save(tmp_path / "a.jpg", exif=told)
    content = (tmp_path / "a.jpg").read_bytes()
    tag = content.index(b"\x01\x1a\x00\x05" if b"\x01\x1a\x00\x05" in content else b"\x1a\x01\x05\x00")
    kind = tag + 2 if content[tag + 2] == 5 else tag + 3
    (tmp_path / "a.jpg").write_bytes(content[:kind] + b"\x02" + content[kind + 1 :])  # now a text
    assert read(str(tmp_path / "a.jpg")).size == (16, 32)


def test_whatever_a_decoder_raises_names_the_image(tmp_path, monkeypatch):
    red_corner().save(tmp_path / "a.jpg")

    def fail(*_):
        raise struct.error("required argument is not an integer")

    monkeypatch.setattr(Image.Image, "getexif", fail)
    with pytest.raises(UnreadableImage, match=r"a\.jpg: required argument is not an integer"):
        read(str(tmp_path / "a.jpg"))
    with pytest.raises(UnreadableImage, match="as given: required argument"):
        as_rgb(red_corner())


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_what_was_turned_is_not_turned_again(tmp_path, suffix):
    told = Image.Exif()
    told[0x0112] = 6
    red_corner().save(tmp_path / f"a.{suffix}", exif=told)
    once = read(str(tmp_path / f"a.{suffix}"))
    assert as_rgb(once).size == once.size == (16, 32)
