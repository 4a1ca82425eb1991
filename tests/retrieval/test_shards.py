import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from iaa.retrieval.shards import Shards

CONFIG = {"model": "lite0", "size": 224}


def shard(start: int, stop: int) -> tuple[int, int, torch.Tensor, torch.Tensor, list[tuple[str, str]]]:
    rows = torch.arange(start, stop)
    return start, stop, rows, rows[:, None].float().repeat(1, 3), []


def opened(folder: Path, config: dict = CONFIG, *, total: int = 6, **options: Any) -> Shards:
    return Shards(folder, config, total, batch_size=2, save_every=2, **options)


def test_shards_are_found_again_and_come_in_order(tmp_path):
    shards = opened(tmp_path / "x.shards", total=7)
    shards.add(4, 6, torch.tensor([5]), torch.full((1, 3), 5.0), [("b.png", "no such file")])
    shards.add(*shard(0, 4))
    shards.release()
    again = opened(tmp_path / "x.shards", total=7)
    assert again.done == 6
    assert not again.finished
    assert again.claim() == (6, 7)
    again.add(6, 7, torch.empty(0, dtype=torch.int64), torch.empty(0, 0), [("c.png", "too large")])
    assert again.finished
    rows, z, bad = again.collect()
    assert rows.tolist() == [0, 1, 2, 3, 5]
    assert z[:, 1].tolist() == [0, 1, 2, 3, 5]
    assert bad == [("b.png", "no such file"), ("c.png", "too large")]
    again.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_gap_alone_is_made_again(tmp_path):
    shards = opened(tmp_path)
    for start in (0, 2, 4):
        shards.add(*shard(start, start + 2))
    shards.release()
    (tmp_path / "000000002-000000004.safetensors").unlink()
    again = opened(tmp_path)
    assert again.done == 4
    assert again.claim() == (2, 4)
    assert again.claim() is None
    again.add(*shard(2, 4))
    assert again.collect()[0].tolist() == list(range(6))
    again.release()


@pytest.mark.parametrize("damage", ["bit", "short", "text"])
def test_a_damaged_shard_is_made_again(tmp_path, damage):
    shards = opened(tmp_path)
    for start in (0, 2, 4):
        shards.add(*shard(start, start + 2))
    shards.release()
    path = tmp_path / "000000002-000000004.safetensors"
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[-3] ^= 4  # in a vector
    path.write_bytes({"bit": content, "short": content[:-1], "text": b"not a shard"}[damage])
    again = opened(tmp_path)
    assert again.done == 4
    assert again.claim() == (2, 4)
    again.add(*shard(2, 4))
    assert again.collect()[1][:, 0].tolist() == list(range(6))
    again.release()


def test_rows_that_two_processes_made_count_once(tmp_path):
    shards = opened(tmp_path)
    shards.add(*shard(0, 4))
    shards.add(*shard(2, 6))
    assert shards.collect()[0].tolist() == list(range(6))
    shards.release()


def test_nothing_of_anothers_is_removed(tmp_path):
    shards = opened(tmp_path / "p")
    shards.add(*shard(0, 2))
    (tmp_path / "p" / "notes.txt").write_text("mine")
    (tmp_path / "p" / ".000000002-000000004-abc.safetensors").write_text("half a part, left by a kill")
    shards.remove()
    assert [file.name for file in (tmp_path / "p").iterdir()] == ["notes.txt"]


def test_another_configuration_is_in_the_way_only_if_work_was_done(tmp_path):
    opened(tmp_path).release()
    shards = opened(tmp_path, CONFIG | {"size": 64})
    shards.add(*shard(0, 2))
    shards.release()
    with pytest.raises(ValueError, match=r"another kind \(size was 64, is 224\).*--restart"):
        opened(tmp_path)
    again = opened(tmp_path, restart=True)
    assert again.done == 0
    again.release()


def test_shards_whose_configuration_was_removed_are_leftovers_of_finished_work(tmp_path):
    shards = opened(tmp_path)
    shards.add(*shard(0, 2))
    shards.release()
    (tmp_path / "config.json").unlink()
    again = opened(tmp_path)
    assert again.done == 0
    again.release()


def test_who_continues_follows_the_plan_of_who_began(tmp_path):
    shards = Shards(tmp_path, CONFIG, 9, batch_size=2, save_every=3, threads=1)
    assert shards.plan == {"shard_rows": 4, "threads": 1}
    shards.add(*shard(0, 4))
    shards.release()
    again = Shards(tmp_path, CONFIG, 9, batch_size=2, save_every=100, threads=2)
    assert again.threads == 1
    assert again.claim() == (4, 8)
    again.release()


CLAIM = """
import sys
from pathlib import Path
from iaa.retrieval.shards import Shards
shards = Shards(Path(sys.argv[1]), {"model": "lite0", "size": 224}, 6, batch_size=2, save_every=2)
print(shards.claim(), flush=True)
input()
"""


def test_what_another_process_works_on_is_left_to_it_until_it_is_killed(tmp_path):
    words = [sys.executable, "-c", CLAIM, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "(0, 2)\n"
        shards = opened(tmp_path)
        assert [shards.claim(), shards.claim(), shards.claim()] == [(2, 4), (4, 6), None]
        with pytest.raises(ValueError, match=r"is in use: .* another kind there \(size was 224, is 64\)"):
            opened(tmp_path, CONFIG | {"size": 64}, restart=True)
        other.kill()
        other.wait()
        assert shards.claim() == (0, 2)
        shards.release()


def test_one_process_writes_the_result(tmp_path):
    shards = opened(tmp_path / "x", total=2)
    shards.add(*shard(0, 2))
    late = opened(tmp_path / "x", total=2)
    with shards.finishing():
        shards.remove()
    assert late.finished
    assert late.finishing() is None
    late.release()


def test_a_folder_that_a_process_keeps_to_itself(tmp_path, monkeypatch):
    monkeypatch.setattr("iaa.retrieval.shards.OPENING_SECONDS", 0.1)
    opened(tmp_path).release()
    code = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX)"
    words = [sys.executable, "-c", f"{code}; print('held', flush=True); input()", str(tmp_path / "lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(OSError, match="another process is writing there right now"):
            opened(tmp_path)
        holder.communicate("\n")
    opened(tmp_path).release()


def test_work_of_another_kind_is_refused_before_any_of_it_is_removed(tmp_path):
    parts = Shards(tmp_path, {"data": "large"}, 4096)
    parts.add(0, 1024, torch.arange(1024), torch.zeros(1024, 2), [])
    parts.release()
    with pytest.raises(ValueError, match="unfinished work of another kind"):
        Shards(tmp_path, {"data": "small"}, 10)
    again = Shards(tmp_path, {"data": "large"}, 4096, restart=True)
    assert again.done == 1024
    again.release()
