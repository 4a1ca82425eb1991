from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import iaa
import runs
from iaa.cli import main
from iaa.config import Network, Split
from iaa.models import Embedder
from iaa.train import train


@pytest.fixture(scope="package")
def trained(tmp_path_factory) -> Path:
    base = tmp_path_factory.mktemp("gallery")
    runs.pictures(base / "data", classes=6, each=5)
    return train(runs.tiny(base / "data", base / "runs", epochs=1, split=Split(test_share=0.4)), quiet=True)


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A copy of its own, without a gallery."""
    folder = tmp_path / "run"
    folder.mkdir()
    for file in ("config.json", "model.safetensors", "embeddings.safetensors"):
        (folder / file).write_bytes((trained / file).read_bytes())
    return folder


@pytest.fixture
def seen(monkeypatch) -> list[int]:
    """How many pictures went through a network, batch by batch."""
    batches: list[int] = []
    forward = Embedder.forward

    def counted(self, images):
        batches.append(len(images))
        return forward(self, images)

    monkeypatch.setattr(Embedder, "forward", counted)
    return batches


@pytest.fixture(scope="package")
def home(tmp_path_factory) -> Path:
    """Pictures, a run on them, an embeddings file by a frozen network, and a head trained on that file."""
    base = tmp_path_factory.mktemp("model")
    runs.pictures(base / "data")
    config = runs.tiny(base / "data", base / "runs", epochs=1)
    train(config, quiet=True)
    words = ["embed", f"folder:{base / 'data'}", "--out", str(base / "frozen.safetensors"), "--split", "all"]
    torch.manual_seed(0)
    weights = iaa.load(base / "runs" / "run-1").network.state_dict()
    save_file({key: value.contiguous() for key, value in weights.items()}, base / "weights.safetensors")
    words += ["--model", "convnet", "--size", "16", "--weights", str(base / "weights.safetensors")]
    assert main([*words, "--workers", "0"]) == 0
    head = replace(config, data=f"embeddings:{base / 'frozen.safetensors'}", network=Network(dim=4))
    train(replace(head, run=replace(config.run, name="head")), quiet=True)
    return base
