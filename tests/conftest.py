import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from jaxtyping import config as jaxtyping_config
from safetensors.torch import save_file

import hub_stand_in
import iaa
import tiny_runs
from iaa.cli import main
from iaa.config import Network, Split
from iaa.models import Embedder
from iaa.train import train

# on a busy machine threads wait for each other more than they bring; in other processes too
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    torch.manual_seed(0)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Without the type checks that only tests have: what a user sees who passes nonsense."""
    jaxtyping_config.update("jaxtyping_disable", True)
    yield
    jaxtyping_config.update("jaxtyping_disable", False)


@pytest.fixture
def compiler(unchecked: None) -> Iterator[None]:
    """A compiler that remembers nothing of other tests: it gives up on code it has met too often."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    base = tmp_path_factory.mktemp("gallery")
    tiny_runs.images(base / "data", classes=6, each=5)
    return train(
        tiny_runs.tiny(base / "data", base / "runs", epochs=1, split=Split(test_share=0.4)), quiet=True
    ).path


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
    """How many images went through a network, batch by batch."""
    batches: list[int] = []
    forward = Embedder.forward

    def counted(self, images):
        batches.append(len(images))
        return forward(self, images)

    monkeypatch.setattr(Embedder, "forward", counted)
    return batches


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Path:
    """Images, a run on them, an embeddings file by a frozen network, and a head trained on that file."""
    base = tmp_path_factory.mktemp("model")
    tiny_runs.images(base / "data")
    config = tiny_runs.tiny(base / "data", base / "runs", epochs=1)
    train(config, quiet=True)
    words = ["embed", f"folder:{base / 'data'}", "--out", str(base / "frozen.safetensors"), "--split", "all"]
    torch.manual_seed(0)
    weights = iaa.load(base / "runs" / "run-1").network.state_dict()
    save_file({key: value.contiguous() for key, value in weights.items()}, base / "weights.safetensors")
    words += ["--model", "convnet", "--size", "16", "--weights", str(base / "weights.safetensors")]
    assert main([*words, "--workers", "0"]) == 0
    head = replace(config, data=f"embeddings:{base / 'frozen.safetensors'}", network=Network(dim=4))
    train(replace(head, run=replace(config.run, name="head-1")), quiet=True)
    return base


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Iterator[hub_stand_in.Hub]:
    """A hub on loopback with an empty cache, a person who may write, and no other hub in reach."""
    constants = pytest.importorskip("huggingface_hub.constants")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with hub_stand_in.running() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", hub_stand_in.TOKEN)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        yield hub
