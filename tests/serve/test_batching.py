import threading
import time
from concurrent.futures import CancelledError

import pytest

from iaa.serve.batching import Batcher, Overloaded


class Doubler:
    """Doubles numbers, remembers its batches, and can be held up."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.began = threading.Event()

    def __call__(self, items: list[int]) -> list[int]:
        self.seen.append(items)
        self.began.set()
        assert self.gate.wait(10)
        if 13 in items:
            raise ValueError("13 is refused")
        return [2 * item for item in items]


def test_waiting_items_share_a_batch_and_each_gets_its_own_result():
    work = Doubler()
    work.gate.clear()
    batcher = Batcher(work, max_items=4, gather_seconds=0, max_waiting=32)
    first = batcher.submit(100)
    assert work.began.wait(5)  # the thread is busy now: all others wait
    others = [batcher.submit(number) for number in range(10)]
    assert len(batcher) == 10
    work.gate.set()
    assert first.result(5) == 200
    assert [future.result(5) for future in others] == [2 * number for number in range(10)]
    assert work.seen == [[100], [0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert (batcher.batches, batcher.items) == (4, 11)
    batcher.close()


def test_a_single_request_waits_briefly_for_others():
    work = Doubler()
    batcher = Batcher(work, max_items=4, gather_seconds=0.5, max_waiting=8)
    first = batcher.submit(1)
    time.sleep(0.05)
    second = batcher.submit(2)
    assert (first.result(5), second.result(5)) == (2, 4)
    assert work.seen == [[1, 2]]
    batcher.close()


def test_a_full_queue_raises_at_once_and_loses_nothing():
    work = Doubler()
    work.gate.clear()
    batcher = Batcher(work, max_items=1, gather_seconds=0, max_waiting=3)
    kept = [batcher.submit(0)]
    assert work.began.wait(5)
    kept += [batcher.submit(number) for number in range(1, 4)]
    began = time.monotonic()
    with pytest.raises(Overloaded, match="3 requests are waiting"):
        batcher.submit(4)
    assert time.monotonic() - began < 1
    work.gate.set()
    assert [future.result(5) for future in kept] == [0, 2, 4, 6]
    batcher.close()


def test_an_item_that_fails_does_not_spoil_the_others():
    work = Doubler()
    work.gate.clear()
    batcher = Batcher(work, max_items=8, gather_seconds=0, max_waiting=8)
    first = batcher.submit(1)
    assert work.began.wait(5)
    futures = [batcher.submit(number) for number in (2, 13, 3)]
    work.gate.set()
    assert first.result(5) == 2
    assert (futures[0].result(5), futures[2].result(5)) == (4, 6)
    with pytest.raises(ValueError, match="13 is refused"):
        futures[1].result(5)
    assert batcher.submit(5).result(5) == 10  # and the thread lives on
    batcher.close()


def test_cancelled_items_are_not_run():
    work = Doubler()
    work.gate.clear()
    batcher = Batcher(work, max_items=8, gather_seconds=0, max_waiting=8)
    batcher.submit(1)
    assert work.began.wait(5)
    gone, stays = batcher.submit(2), batcher.submit(3)
    assert gone.cancel()
    work.gate.set()
    assert stays.result(5) == 6
    with pytest.raises(CancelledError):
        gone.result(5)
    assert work.seen == [[1], [3]]
    batcher.close()


def test_close_finishes_what_waits_and_refuses_more():
    work = Doubler()
    work.gate.clear()
    batcher = Batcher(work, max_items=2, gather_seconds=0, max_waiting=8)
    futures = [batcher.submit(number) for number in range(5)]
    threading.Timer(0.1, work.gate.set).start()
    batcher.close()
    assert [future.result(0) for future in futures] == [0, 2, 4, 6, 8]
    with pytest.raises(Overloaded, match="stopping"):
        batcher.submit(1)
    batcher.close()


@pytest.mark.parametrize("name", ["max_items", "max_waiting"])
def test_bounds_are_checked(name):
    with pytest.raises(ValueError, match=f"{name} must be 1 or more, got 0"):
        Batcher(Doubler(), **{name: 0})
