"""Names with control characters do not reach the terminal as they are, whichever command prints them."""

import numpy as np
import pytest
import torch
from PIL import Image

import iaa
from iaa.cli import main
from iaa.terminal import escape

CLEAR = "\x1b[2J"
CONVNET = ("--model", "convnet", "--no-pretrained")


@pytest.fixture
def folder(tmp_path):
    """Images and embeddings whose names would clear the screen."""
    pixels = np.random.default_rng(0).integers(0, 255, (20, 20, 3), dtype=np.uint8)
    for label in range(3):
        (tmp_path / f"images/{CLEAR}{label}").mkdir(parents=True)
        for number in range(3):
            Image.fromarray(pixels).save(tmp_path / f"images/{CLEAR}{label}/{number}{CLEAR}.png")
        (tmp_path / f"images/{CLEAR}{label}/bad{CLEAR}.png").write_bytes(b"no image")
    labels = torch.arange(60) // 6
    z = torch.randn(60, 8, generator=torch.Generator().manual_seed(0)) + labels[:, None]
    names = {label: f"{CLEAR}{label}" for label in range(10)}
    iaa.Embeddings(z, labels, [f"{CLEAR}{row}.jpg" for row in range(60)], names).save(tmp_path / "e.npz")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["evaluate", f"missing{CLEAR}.npz"], 2),
        (["search", f"missing{CLEAR}", "x.jpg"], 2),
        (["evaluate", "e.npz", "--per-class"], 0),
        (["analyze", "atlas", "e.npz"], 0),
        (["embed", "folder:images", "--out", "o.safetensors", *CONVNET], 2),
        (["embed", "folder:images", "--out", "o.safetensors", *CONVNET, "--on-bad-image", "skip"], 0),
    ],
    ids=["missing file", "missing run", "worst classes", "atlas", "unreadable image", "left out"],
)
@pytest.mark.filterwarnings("ignore")
def test_control_characters_in_names_are_escaped(arguments, code, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(arguments) == code
    output = "".join(capsys.readouterr())
    assert r"\x1b[2J" in output
    assert "\x1b" not in output


def test_markup_of_rich_is_escaped_too():
    assert escape(f"[red]{CLEAR}") == r"\[red]\x1b[2J"
