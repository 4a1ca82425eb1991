import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import iaa
from iaa.retrieval.embeddings import Embeddings


@pytest.fixture
def damaged(home, tmp_path) -> Path:
    """A copy that may be damaged."""
    for file in (home / "runs" / "run-1").glob("*.*"):
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return Path.write_text, (self.target, "executed")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_planted_pickle_is_refused_and_never_executed(damaged, tmp_path, name):
    went_off = tmp_path / "went-off"
    code = pickle.dumps(Bomb(went_off))
    pickle.loads(code)
    assert went_off.exists()  # the bomb works
    went_off.unlink()
    (damaged / name).write_bytes(code)
    with pytest.raises(ValueError, match=name):
        iaa.load(damaged)
    assert not went_off.exists()


def test_truncated_or_foreign_weights_are_named(damaged):
    file = damaged / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    with pytest.raises(ValueError, match=r"model\.safetensors is truncated"):
        iaa.load(damaged)
    file.write_bytes(whole)
    state = load_file(file)
    save_file({**state, "head.weight": torch.zeros(9, 256)}, file)
    with pytest.raises(ValueError, match=r"head\.weight must have shape \(8, 256\), got \(9, 256\)"):
        iaa.load(damaged)
    save_file({key: value for key, value in state.items() if key != "head.bias"}, file)
    with pytest.raises(ValueError, match=r"model\.safetensors .* lacks head\.bias"):
        iaa.load(damaged)
    save_file({**state, "tail": torch.zeros(1)}, file)
    with pytest.raises(ValueError, match="has tail, which the network does not have"):
        iaa.load(damaged)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"no model\.safetensors: if training was interrupted"):
        iaa.load(damaged)


def test_a_run_of_another_version_is_named(damaged):
    config = json.loads((damaged / "config.json").read_text())
    (damaged / "config.json").write_text(json.dumps(config | {"warp": 9}))
    with pytest.raises(ValueError, match=r"config\.json must be one of .*; got 'warp'"):
        iaa.load(damaged)
    with pytest.raises(FileNotFoundError, match="no run and no embeddings file at"):
        iaa.load(damaged / "nowhere")


def test_weights_that_an_embeddings_file_names_are_read_without_executing_anything(home, tmp_path):
    went_off = tmp_path / "went-off"
    torch.save({"state_dict": Bomb(went_off)}, tmp_path / "weights.pth")
    frozen = Embeddings.load(home / "frozen.safetensors")
    file = tmp_path / "vectors.safetensors"
    replace(frozen, meta=frozen.meta | {"weights": str(tmp_path / "weights.pth")}).save(file)
    with pytest.raises(ValueError, match=r"weights\.pth holds no plain tensors that can be read safely"):
        iaa.load(file)
    np.savez(tmp_path / "gallery.npz", z=np.array([Bomb(went_off)], dtype=object), labels=np.arange(1))
    with pytest.raises(ValueError, match=r"gallery\.npz is truncated, holds pickled objects"):
        iaa.Gallery.open(iaa.load(home / "runs" / "run-1"), str(tmp_path / "gallery.npz"))
    assert not went_off.exists()
