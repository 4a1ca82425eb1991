import socket
import subprocess
import sys
import urllib.error

import pytest
import torch

from iaa.models import build, download
from iaa.torchvision_compat import torchvision
from oracles_models import published


@pytest.fixture
def unplugged(monkeypatch):
    def refuse(*_, **__):
        raise urllib.error.URLError("no network")

    torchvision()
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", refuse)
    monkeypatch.setattr("torch.hub.load_state_dict_from_url", refuse)
    monkeypatch.setattr("socket.create_connection", refuse)
    monkeypatch.setattr("urllib.request.getproxies", dict)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("googlenet", "https://download.pytorch.org/models/googlenet-1378be20.pth"),
        ("resnet50", "https://download.pytorch.org/models/resnet50-0676ba61.pth"),
        ("bn_inception", "bn_inception-239d2248.pth"),
        ("timm/resnet10t.c3_in1k", "resnet10t"),
    ],
)
def test_without_network_one_line_says_which_file_to_give(unplugged, name, file, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(OSError, match="could not be fetched") as caught:
        build(name)
    message = str(caught.value)
    assert file in message
    assert "weights=FILE" in message
    assert "\n" not in message


def test_published_weights_are_used_where_they_can_be_fetched(monkeypatch):
    state = published("resnet50")
    torchvision()
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", lambda *_, **__: state)
    embedder = build("resnet50")
    assert torch.equal(embedder.backbone.conv1.weight, state["conv1.weight"])
    assert str(embedder.loaded) == "the published weights of resnet50: 318 entries taken"


def test_downloads_are_impatient_and_leave_nothing_changed():
    before = socket.getdefaulttimeout()
    seen = []

    @download.fetching("x", "https://example.org/x.pth")
    def fail():
        seen.append(socket.getdefaulttimeout())
        raise RuntimeError("bad hash")

    with pytest.raises(OSError, match=r"weights of x could not be fetched \(RuntimeError: bad hash\)"):
        fail()
    assert seen == [10]
    assert socket.getdefaulttimeout() == before


def test_the_hub_works_from_its_cache_while_its_host_is_silent(unplugged):
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    with download.hub():
        assert constants.HF_HUB_OFFLINE
    assert before == constants.HF_HUB_OFFLINE


def test_importing_the_models_stays_light():
    code = "import sys, iaa.models; print({'timm', 'torchvision', 'huggingface_hub'} & {*sys.modules})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
