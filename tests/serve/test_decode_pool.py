"""Decoding in processes: fair, bounded, abandoned when it takes too long."""

import asyncio
import io
import os
import signal
import struct
from collections.abc import Iterator

import pytest
import torch
from PIL import Image

import tiny_server
from iaa.data.image_dataset import transform
from iaa.serve import decode_pool
from iaa.serve.api_errors import ApiError
from iaa.serve.decode_pool import DecodePool
from iaa.serve.decoding import SMALL_PIXELS, LargeImage, decoding_cost, prepare_upload

STEP = {"size": 16, "resize": 18}


def encoded(width: int, height: int, kind: str = "PNG", **options: object) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), "teal").save(out, kind, **options)
    return out.getvalue()


@pytest.fixture
def pool() -> Iterator[DecodePool]:
    made = DecodePool(STEP, pixels=9_000_000, seconds=20, small_workers=1, large_workers=1)
    yield made
    made.close()


@pytest.mark.parametrize(("width", "height"), [(40, 30), (2500, 2000)], ids=["small", "large"])
def test_a_process_decodes_as_this_one_does(pool, width, height):
    content = encoded(width, height)
    pixels = asyncio.run(pool.prepare(content, "a"))
    expected = prepare_upload(content, transform(False, **STEP), pixels=10**8)
    assert torch.equal(pixels, torch.from_numpy(expected))


def test_errors_come_back_as_they_are(pool):
    for content, status in ((b"", 422), (b"text", 422), (encoded(4000, 3000), 413)):
        with pytest.raises(ApiError) as refused:
            asyncio.run(pool.prepare(content, "a"))
        assert refused.value.status_code == status


def test_a_decoder_that_died_costs_no_request(pool):
    content = encoded(40, 30)
    asyncio.run(pool.prepare(content, "a"))
    for pid in pool.processes():
        os.kill(pid, signal.SIGKILL)
    assert asyncio.run(pool.prepare(content, "a")).shape == (3, 16, 16)  # even if it still seems alive


def test_small_images_do_not_wait_for_large_ones(pool):
    """The large lane is stopped outright: whoever waits for it would never return."""
    large, small = encoded(2500, 2000), encoded(40, 30)
    asyncio.run(pool.prepare(large, "a"))
    (stopped,) = [worker.pid for worker in pool._large.workers]
    os.kill(stopped, signal.SIGSTOP)

    async def flood() -> int:
        waiting = [asyncio.ensure_future(pool.prepare(large, "a")) for _ in range(3)]
        await asyncio.sleep(0.3)
        for _ in range(5):
            await asyncio.wait_for(pool.prepare(small, "b"), 10)
        unfinished = sum(not task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return unfinished

    assert asyncio.run(flood()) == 3


def test_an_image_that_takes_too_long_is_abandoned_with_its_process(pool):
    large = encoded(2500, 2000)
    asyncio.run(pool.prepare(large, "a"))
    (worker,) = pool._large.workers
    worker._seconds, pid = 0.5, worker.pid
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(ApiError, match="takes too long") as refused:
        asyncio.run(pool.prepare(large, "a"))
    assert refused.value.status_code == 413
    tiny_server.eventually(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_cancelled_request_stops_its_decoding(pool):
    large = encoded(2500, 2000)
    asyncio.run(pool.prepare(large, "a"))
    (pid,) = [worker.pid for worker in pool._large.workers]
    os.kill(pid, signal.SIGSTOP)

    async def leave() -> None:
        await asyncio.wait_for(pool.prepare(large, "a"), 0.3)

    with pytest.raises(TimeoutError):
        asyncio.run(leave())
    tiny_server.eventually(lambda: not os.path.exists(f"/proc/{pid}"))
    assert asyncio.run(pool.prepare(large, "a")).shape == (3, 16, 16)


def test_a_client_may_queue_half_of_the_pixels_and_a_new_client_always_one_image(pool, monkeypatch):
    monkeypatch.setattr(pool, "_budget", 4 * 5_000_000)
    large = encoded(2500, 2000)
    asyncio.run(pool.prepare(large, "a"))
    os.kill(pool._large.workers[0].pid, signal.SIGSTOP)

    async def crowd() -> tuple[int, bool]:
        flood = [asyncio.ensure_future(pool.prepare(large, "a")) for _ in range(6)]
        await asyncio.sleep(1)
        refused = sum(task.done() and task.exception().status_code == 503 for task in flood)
        other = asyncio.ensure_future(pool.prepare(large, "b"))
        await asyncio.sleep(0.5)
        admitted = not other.done()
        for task in (*flood, other):
            task.cancel()
        await asyncio.gather(*flood, other, return_exceptions=True)
        return refused, admitted

    assert asyncio.run(crowd()) == (4, True)
    assert pool._costs.total() == 0


def test_an_image_that_is_small_but_slow_moves_to_the_other_lane(pool, monkeypatch):
    content = encoded(40, 30)
    asyncio.run(pool.prepare(content, "a"))
    pool._small.workers[0]._seconds = 0.3
    os.kill(pool._small.workers[0].pid, signal.SIGSTOP)
    assert asyncio.run(pool.prepare(content, "a")).shape == (3, 16, 16)


def test_closing_ends_the_processes_and_fails_what_waits():
    pool = DecodePool(STEP, pixels=9_000_000, seconds=20, small_workers=1, large_workers=1)
    asyncio.run(pool.prepare(encoded(40, 30), "a"))
    tiny_server.eventually(lambda: len(pool.processes()) == 2)
    pids = pool.processes()
    pool.close()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_the_cost_of_a_jpeg_is_that_of_its_reduced_size():
    step = transform(False, size=16, resize=18)  # at least 36 pixels
    costs = {}
    for kind, options in (("JPEG", {}), ("JPEG", {"progressive": True}), ("WEBP", {"lossless": True})):
        with Image.open(io.BytesIO(encoded(400, 300, kind, **options))) as image:
            costs[kind, bool(options.get("progressive"))] = decoding_cost(image, step)
    assert costs == {("JPEG", False): 30_000, ("JPEG", True): 120_000, ("WEBP", False): 120_000}
    with Image.open(io.BytesIO(encoded(400, 40, "JPEG"))) as narrow:
        assert decoding_cost(narrow, step) == 16_000  # reduced, it would be too small


def test_the_cost_is_read_from_the_header_alone():
    side = 2100
    claim = bytearray(encoded(8, 8))
    claim[16:24] = struct.pack(">II", side, side)
    import zlib

    claim[29:33] = struct.pack(">I", zlib.crc32(bytes(claim[12:29])))
    with pytest.raises(LargeImage) as large:
        prepare_upload(bytes(claim), transform(False, **STEP), pixels=10**7, at_once=SMALL_PIXELS)
    assert large.value.cost == side * side


def test_without_a_fork_server_processes_are_spawned(monkeypatch):
    monkeypatch.setattr(decode_pool.multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert decode_pool._context().get_start_method() == "spawn"


def many_scans(width: int, height: int, scans: int) -> bytes:
    """A progressive JPEG whose last scan is there many times over: a few bytes each, all pixels each."""
    content = encoded(width, height, "JPEG", progressive=True)
    last, end = content.rfind(b"\xff\xda"), content.rfind(b"\xff\xd9")
    return content[:end] + content[last:end] * scans + content[end:]


def test_a_jpeg_of_many_scans_costs_as_many_pixels_as_it_visits():
    step = transform(False, **STEP)
    with pytest.raises(LargeImage):
        prepare_upload(many_scans(500, 400, 1000), step, pixels=9_000_000, at_once=SMALL_PIXELS)
    with pytest.raises(ApiError, match="too many"):
        prepare_upload(many_scans(2000, 1500, 1000), step, pixels=9_000_000)
    assert prepare_upload(many_scans(2000, 1500, 2), step, pixels=9_000_000).shape == (3, 16, 16)


def test_one_worker_is_always_left_to_other_clients():
    pool = DecodePool(STEP, pixels=9_000_000, seconds=20, small_workers=2, large_workers=1)
    try:
        small = encoded(40, 30)

        async def flood() -> None:
            await asyncio.gather(*(pool.prepare(small, name) for name in "ab"))  # both are running
            waiting = [asyncio.ensure_future(pool.prepare(many_scans(900, 900, 31), "a")) for _ in range(8)]
            await asyncio.sleep(0.1)
            assert pool._small.queue._running["a"] == 1
            await asyncio.wait_for(pool.prepare(small, "b"), 10)
            await asyncio.gather(*waiting)

        asyncio.run(flood())
    finally:
        pool.close()
