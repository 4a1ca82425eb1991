import subprocess
import sys

import pytest
import torch

from iaa.retrieval.shards import Shards

CONFIG = {"model": "lite0", "size": 224}


def shard(start: int, stop: int) -> tuple[int, torch.Tensor, torch.Tensor, list[tuple[str, str]]]:
    rows = torch.arange(start, stop)
    return stop, rows, rows[:, None].float().repeat(1, 3), []


def test_shards_are_found_again_and_come_in_order(tmp_path):
    shards = Shards(tmp_path / "x.shards", CONFIG)
    shards.add(*shard(0, 4))
    shards.add(6, torch.tensor([5]), torch.full((1, 3), 5.0), [("b.png", "no such file")])
    shards.release()
    again = Shards(tmp_path / "x.shards", CONFIG)
    assert again.done == 6
    again.add(7, torch.empty(0, dtype=torch.int64), torch.empty(0, 0), [("c.png", "too large")])
    rows, z, bad = again.collect()
    assert rows.tolist() == [0, 1, 2, 3, 5]
    assert z[:, 1].tolist() == [0, 1, 2, 3, 5]
    assert bad == [("b.png", "no such file"), ("c.png", "too large")]
    again.remove()
    assert list(tmp_path.iterdir()) == []


def test_after_a_gap_nothing_counts(tmp_path):
    shards = Shards(tmp_path, CONFIG)
    for start in (0, 2, 4):
        shards.add(*shard(start, start + 2))
    shards.release()
    (tmp_path / "000000002-000000004.safetensors").unlink()
    again = Shards(tmp_path, CONFIG)
    assert again.done == 2
    again.add(*shard(2, 6))
    assert again.collect()[0].tolist() == list(range(6))
    again.release()


@pytest.mark.parametrize("damage", ["bit", "short", "text"])
def test_a_damaged_shard_and_what_follows_is_made_again(tmp_path, damage):
    shards = Shards(tmp_path, CONFIG)
    for start in (0, 2, 4):
        shards.add(*shard(start, start + 2))
    shards.release()
    path = tmp_path / "000000002-000000004.safetensors"
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[-3] ^= 4  # in a vector
    path.write_bytes({"bit": content, "short": content[:-1], "text": b"not a shard"}[damage])
    again = Shards(tmp_path, CONFIG)
    assert again.done == 2
    again.add(*shard(2, 6))
    assert again.collect()[1][:, 0].tolist() == list(range(6))
    again.release()


def test_nothing_of_anothers_is_removed(tmp_path):
    shards = Shards(tmp_path / "p", CONFIG)
    shards.add(*shard(0, 2))
    (tmp_path / "p" / "notes.txt").write_text("mine")
    (tmp_path / "p" / ".000000002-000000004-abc.safetensors").write_text("half a part, left by a kill")
    shards.remove()
    assert [file.name for file in (tmp_path / "p").iterdir()] == ["notes.txt"]


def test_another_configuration_is_in_the_way_only_if_work_was_done(tmp_path):
    Shards(tmp_path, CONFIG).release()
    shards = Shards(tmp_path, CONFIG | {"size": 64})
    shards.add(*shard(0, 2))
    shards.release()
    with pytest.raises(ValueError, match=r"another kind \(size was 64, is 224\).*--restart"):
        Shards(tmp_path, CONFIG)
    again = Shards(tmp_path, CONFIG, restart=True)
    assert again.done == 0
    again.release()


def test_one_process_at_a_time(tmp_path):
    Shards(tmp_path, CONFIG).release()
    code = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX)"
    words = [sys.executable, "-c", f"{code}; print('held', flush=True); input()", str(tmp_path / "lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(OSError, match="another process is writing there right now"):
            Shards(tmp_path, CONFIG)
        holder.communicate("\n")
    Shards(tmp_path, CONFIG).release()
