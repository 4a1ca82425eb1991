import pickle
import socket
import subprocess
import sys
import urllib.error

import pytest
import torch
from safetensors.torch import save_file

from iaa.files import write_tensors
from iaa.models import build
from iaa.models.weights import fetching, fit, hub, read
from iaa.torchvision_compat import torchvision
from oracles_models import published


class Evil:
    def __reduce__(self):
        return print, ("this must never be run",)


@pytest.fixture
def state():
    return build("convnet").backbone.state_dict()


def test_missing_and_unexpected_keys_are_reported(state, tmp_path):
    first = next(iter(state))
    torch.save(
        {**{key: state[key] for key in state if key != first}, "stem.alpha": torch.ones(1)},
        tmp_path / "w.pth",
    )
    with pytest.warns(UserWarning, match=rf"1 missing \({first}\); 1 unexpected \(stem.alpha\)"):
        embedder = build("convnet", weights=tmp_path / "w.pth")
    assert embedder.loaded.missing == (first,)
    assert embedder.loaded.unexpected == ("stem.alpha",)
    assert embedder.loaded.taken == len(state) - 1


def test_a_file_that_matches_nothing_is_refused(tmp_path):
    save_file({"encoder.a": torch.ones(1), "encoder.b": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(
        ValueError, match=r"matches nothing of this network: it holds encoder.a, encoder.b; expected 0\.w"
    ):
        build("convnet", weights=tmp_path / "other.safetensors")


def test_a_wrong_shape_names_the_entry(state, tmp_path):
    torch.save({**state, "0.weight": torch.ones(32, 1, 5, 5)}, tmp_path / "grey.pth")
    with pytest.raises(
        ValueError, match=r"0\.weight of .*grey\.pth must have shape \(32, 3, 5, 5\), got \(32, 1, 5, 5\)"
    ):
        build("convnet", weights=tmp_path / "grey.pth")


def test_another_kind_of_number_is_refused(state, tmp_path):
    retyped = {**state, "0.weight": state["0.weight"].view(torch.int32)}
    save_file(retyped, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=r"0\.weight of .*w\.safetensors must hold float32, got int32"):
        build("convnet", weights=tmp_path / "w.safetensors")
    half = {key: value.half() if value.is_floating_point() else value for key, value in state.items()}
    save_file(half, tmp_path / "half.safetensors")
    loaded = build("convnet", weights=tmp_path / "half.safetensors").backbone.state_dict()
    assert loaded["0.weight"].dtype == torch.float32
    assert torch.equal(loaded["0.weight"], half["0.weight"].float())


def test_a_wrong_bit_in_a_file_of_ours_is_noticed(state, tmp_path):
    path = tmp_path / "w.safetensors"
    write_tensors(path, state)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"w\.safetensors is damaged: its content does not match"):
        read(path)


@pytest.mark.parametrize("wrapper", ["state_dict", "model"])
def test_what_training_scripts_save_is_unwrapped(state, wrapper, tmp_path):
    torch.save(
        {wrapper: {f"module.{key}": value for key, value in state.items()}, "epoch": 3}, tmp_path / "w.pt"
    )
    assert read(tmp_path / "w.pt").keys() == state.keys()


def test_a_whole_embedder_comes_back_with_its_head(tmp_path):
    saved = build("convnet", dim=8)
    save_file(saved.state_dict(), tmp_path / "model.safetensors")
    again = build("convnet", dim=8, weights=tmp_path / "model.safetensors")
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(saved.eval()(images), again.eval()(images))
    bare = build("convnet", dim=None, weights=tmp_path / "model.safetensors")
    assert bare.loaded.unexpected == ()
    with pytest.raises(ValueError, match=r"head\.weight .* must have shape \(16, 256\), got \(8, 256\)"):
        build("convnet", dim=16, weights=tmp_path / "model.safetensors")


def test_unreadable_files_end_in_one_line(tmp_path):
    (tmp_path / "text.pth").write_text("not a network")
    (tmp_path / "text.safetensors").write_text("not a network")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ValueError, match=r"text.pth holds no plain tensors"):
        read(tmp_path / "text.pth")
    with pytest.raises(ValueError, match=r"text.safetensors is truncated or not a safetensors file"):
        read(tmp_path / "text.safetensors")
    with pytest.raises(ValueError, match=r"list.pth must hold a state dict, got list"):
        read(tmp_path / "list.pth")
    with pytest.raises(FileNotFoundError, match=r"none.pth does not exist"):
        read(tmp_path / "none.pth")
    with pytest.raises(ValueError, match=r"ending of the weights file .*w.onnx"):
        read(tmp_path / "w.onnx")


def test_code_inside_a_file_is_never_run(tmp_path, capsys):
    torch.save({"a": Evil()}, tmp_path / "evil.pth")
    (tmp_path / "bare.pth").write_bytes(pickle.dumps(Evil(), protocol=2))
    for name in ("evil.pth", "bare.pth"):
        with pytest.raises(ValueError, match=r"holds no plain tensors that can be read safely"):
            read(tmp_path / name)
    assert capsys.readouterr().out == ""


def test_unused_entries_pass_in_silence():
    network = torch.nn.Linear(2, 2)
    loaded = fit(
        network, {**network.state_dict(), "fc.weight": torch.ones(1)}, source="here", unused=("fc.",)
    )
    assert str(loaded) == "here: 2 entries taken"


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


def test_downloads_time_out_quickly_and_restore_the_default_timeout():
    before = socket.getdefaulttimeout()
    seen = []

    @fetching("x", "https://example.org/x.pth")
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
    with hub():
        assert constants.HF_HUB_OFFLINE
    assert before == constants.HF_HUB_OFFLINE


def test_importing_the_models_stays_light():
    code = "import sys, iaa.models; print({'timm', 'torchvision', 'huggingface_hub'} & {*sys.modules})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
