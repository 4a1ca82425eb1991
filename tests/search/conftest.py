from pathlib import Path

import pytest

import runs
from iaa.config import Split
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
