import errno
import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from iaa import files


@pytest.fixture
def tensors():
    return {
        "weight": torch.randn(3, 4),
        "empty": torch.zeros(0, 2),
        "scalar": torch.tensor(7),
        "half": torch.randn(5).bfloat16(),
        "flags": torch.tensor([True, False]),
    }


def test_tensors_survive_a_round_trip_and_the_reference_reader_agrees(tmp_path, tensors):
    path = tmp_path / "new" / "x.safetensors"
    files.write_tensors(path, tensors, {"format": "pt"})
    read, metadata = files.read_tensors(path)
    assert metadata == {"format": "pt"}
    for name, tensor in load_file(path).items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)
    first = path.read_bytes()
    files.write_tensors(path, dict(reversed(tensors.items())), {"format": "pt"})
    assert path.read_bytes() == first


def test_every_flipped_bit_is_noticed(tmp_path, tensors):
    path = tmp_path / "x.safetensors"
    files.write_tensors(path, tensors, {"note": "some text"})
    content = path.read_bytes()
    messages = set()
    for position in range(0, len(content) * 8, 7):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            read, metadata = files.read_tensors(path)
        except ValueError as error:
            messages.add(str(error).replace(str(path), "PATH").partition(":")[0])
            continue
        # white space after the header and the name of the checksum's key carry no content
        assert metadata["note"] == "some text"
        assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())
    assert all("PATH" in message for message in messages)


def test_files_without_a_checksum_are_read(tmp_path, tensors):
    save_file(tensors, tmp_path / "x.safetensors")
    assert set(files.read_tensors(tmp_path / "x.safetensors")[0]) == set(tensors)


@pytest.mark.parametrize("cut", [0, 4, 20, -1])
def test_a_truncated_file_is_refused(tmp_path, tensors, cut):
    path = tmp_path / "x.safetensors"
    files.write_tensors(path, tensors)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match=r"x\.safetensors is (truncated|damaged)"):
        files.read_tensors(path)


def test_declared_sizes_are_checked_before_memory_is_allocated(tmp_path):
    header = json.dumps({"z": {"dtype": "F32", "shape": [2**40, 2], "data_offsets": [0, 8]}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(ValueError, match="does not match its shape"):
        files.read_tensors(path)


def test_tensors_do_not_change_with_their_file(tmp_path, tensors):
    path = tmp_path / "x.safetensors"
    files.write_tensors(path, tensors)
    read, _ = files.read_tensors(path)
    os.truncate(path, 10)
    assert torch.equal(read["weight"], tensors["weight"])


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "x.txt"
    files.write_text(path, "old")

    def fail() -> None:
        with files.replacing(path) as temporary:
            temporary.write_text("half of the new")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match=r"cannot write .*x\.txt: No space left"):
        fail()
    assert [file.name for file in tmp_path.iterdir()] == ["x.txt"]
    assert path.read_text() == "old"


def test_a_file_in_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "folder").write_text("")
    with pytest.raises(OSError, match="folder is not a folder"):
        files.write_text(tmp_path / "folder" / "x", "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON: it is nested too deeply"),
        (b"\xff{}", "is not UTF-8"),
        (b"[1]", "must hold a JSON object, got list"),
        (b'{"a": 1}', "lacks b"),
    ],
)
def test_invalid_json_is_refused_with_the_name_of_its_file(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        files.read_json(path, required=("a", "b"))
    assert str(path) in str(caught.value)


def test_a_lock_keeps_other_processes_out_until_it_is_released(tmp_path):
    script = f"from iaa.files import Lock; Lock({str(tmp_path / 'lock')!r})"

    def other() -> int:
        return subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode

    with files.Lock(tmp_path / "lock"):
        assert other() == 1
    assert other() == 0
