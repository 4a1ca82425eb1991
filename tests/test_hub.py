"""A model goes to the hub and comes back the same; what goes wrong is said in one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hub_stand_in
import iaa
import tiny_runs
from iaa.train import train

pytestmark = pytest.mark.filterwarnings(hub_stand_in.CLIENT_WARNING)
constants = pytest.importorskip("huggingface_hub.constants")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> iaa.Run:
    folder = tmp_path_factory.mktemp("hub")
    config = tiny_runs.tiny(tiny_runs.images(folder / "photos"), folder / "runs", epochs=1)
    return train(config, quiet=True)


def test_a_model_from_the_hub_equals_the_one_uploaded(run, hub):
    url = run.model.push_to_hub("ada/birds")
    assert url.startswith(f"{hub.url}/ada/birds/commit/")
    again = iaa.load("hf:ada/birds", device="cpu")
    images = [str(path) for path in sorted(Path(run.config.data.partition(":")[2]).rglob("*.png"))[:5]]
    assert torch.equal(again.embed(images), run.model.embed(images))
    assert again.weights == run.model.weights


def test_a_published_model_holds_no_local_paths_and_its_card_shows_how_to_load_it(run, hub):
    run.model.push_to_hub("ada/birds")
    files = hub.files("ada/birds")
    assert sorted(files) == [
        "README.md",
        "config.json",
        "metrics.json",
        "model.safetensors",
        "preprocessing.json",
    ]
    assert b'iaa.load("hf:ada/birds")' in files["README.md"]
    assert not any(str(run.path.parent.parent).encode() in content for content in files.values())


def test_reading_a_private_repository_needs_permission(run, hub, monkeypatch):
    run.model.push_to_hub("ada/secret", private=True)
    assert iaa.load("hf:ada/secret").dim == 8
    monkeypatch.setattr(constants, "HF_HUB_CACHE", constants.HF_HUB_CACHE + "-other")
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(
        FileNotFoundError, match=r"^hf:ada/secret: there is no such model, or you may not read it: check"
    ):
        iaa.load("hf:ada/secret")


@pytest.mark.parametrize("token", ["hf_other", None])
def test_pushing_without_permission_is_reported(run, hub, monkeypatch, token):
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(
        (PermissionError, FileNotFoundError), match=r"may not write to it.*hf auth login"
    ) as e:
        run.model.push_to_hub("ada/birds", token=token)
    assert "\n" not in str(e.value)


def test_a_revision_can_be_a_branch_or_a_commit(run, hub):
    run.model.push_to_hub("ada/birds@v1")
    first = hub.branches["ada/birds"]["v1"]
    assert iaa.load("hf:ada/birds@v1").weights == run.model.weights
    assert iaa.load(f"hf:ada/birds@{first}").weights == run.model.weights
    with pytest.raises(FileNotFoundError, match=r"^hf:ada/birds has no revision 'v9'$"):
        iaa.load("hf:ada/birds@v9")


def test_a_cached_model_is_loaded_without_a_network(run, hub, monkeypatch):
    run.model.push_to_hub("ada/birds")
    iaa.load("hf:ada/birds")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert iaa.load("hf:ada/birds").weights == run.model.weights
    with pytest.raises(
        ConnectionError, match=r"^hf:ada/other: .* not in the cache \(HF_HUB_OFFLINE is set\)$"
    ):
        iaa.load("hf:ada/other")


def test_an_unreachable_hub_is_named(hub, run, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)  # the client would retry for a minute
    with pytest.raises(ConnectionError, match=r"^hf:ada/birds: http://127.0.0.1:\d+ cannot be reached"):
        run.model.push_to_hub("ada/birds")


def test_a_repository_of_something_else_is_refused(hub):
    hub.put("ada/bert", {"config.json": json.dumps({"architectures": ["Bert"]}).encode()})
    with pytest.raises(ValueError, match=r"^hf:ada/bert is not an iaa model: .*architectures"):
        iaa.load("hf:ada/bert")
    hub.put("ada/empty", {"README.md": b"hello"})
    with pytest.raises(ValueError, match=r"^hf:ada/empty is not an iaa model: it has no config.json$"):
        iaa.load("hf:ada/empty")


def test_weights_are_never_unpickled(run, hub):
    run.model.push_to_hub("ada/birds")
    del hub.files("ada/birds")["model.safetensors"]
    hub.put("ada/birds", {"pytorch_model.bin": b"\x80\x04"})
    with pytest.raises(ValueError, match=r"^hf:ada/birds is not an iaa model: it has no model.safetensors$"):
        iaa.load("hf:ada/birds")
    assert not any("pytorch_model.bin" in request for request in hub.requests)


def test_damaged_weights_are_found_by_their_checksum(run, hub):
    run.model.push_to_hub("ada/birds")
    weights = bytearray(hub.files("ada/birds")["model.safetensors"])
    weights[-1] ^= 1
    hub.put("ada/birds", {"model.safetensors": bytes(weights)})
    with pytest.raises(ValueError, match=r"^hf:ada/birds: .* does not match its checksum$"):
        iaa.load("hf:ada/birds")


def test_a_model_from_the_hub_can_be_published_again(run, hub):
    run.model.push_to_hub("ada/birds")
    iaa.load("hf:ada/birds").push_to_hub("ada/copy")
    assert hub.files("ada/copy")["model.safetensors"] == hub.files("ada/birds")["model.safetensors"]


@pytest.mark.parametrize("name", ["hf:", "hf:birds", "hf:a/b/c", "hf:a/b@"])
def test_a_name_must_be_owner_and_name(name):
    with pytest.raises(ValueError, match=r"^a model on the hub must be hf:OWNER/NAME or"):
        iaa.load(name)


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install 'iaa\[hub\]'"):
        iaa.load("hf:ada/birds")


def test_a_fresh_process_finds_the_hub_by_its_environment(run, hub, tmp_path):
    run.model.push_to_hub("ada/birds")
    code = (
        "import sys, iaa; print(iaa.load('hf:ada/birds').weights, 'pytorch_metric_learning' in sys.modules)"
    )
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == [run.model.weights, "False"]
