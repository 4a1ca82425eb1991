"""Floods and unfinished requests: others are answered meanwhile, and everything is given back."""

import asyncio
import io
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from PIL import Image

import tiny_server
from iaa.serve.api_errors import ApiError
from iaa.serve.limits import FairQueue, Slots, Uploads, client_of


def address(base: str) -> tuple[str, int]:
    host, port = base.removeprefix("http://").split(":")
    return host, int(port)


def half_open(base: str, source: str = "127.0.0.1") -> socket.socket:
    """An upload that is announced and begun, but does not go on."""
    host, port = address(base)
    line = socket.create_connection((host, port), 10, source_address=(source, 0))
    head = f"POST /api/search HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 5000\r\n"
    line.sendall(f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n".encode())
    return line


def costly(side: int) -> bytes:
    """A few bytes that are many pixels."""
    out = io.BytesIO()
    Image.new("RGB", (side, side), "olive").save(out, "WEBP", lossless=True)
    return out.getvalue()


def test_unfinished_uploads_take_no_slots(run, photo):
    with tiny_server.served(tiny_server.service(run, in_flight=4)) as base:
        lines = [half_open(base) for _ in range(12)]
        time.sleep(0.3)
        for _ in range(3):
            assert tiny_server.post(base, photo, top=1).status_code == 200
        assert httpx.get(f"{base}/api/health", timeout=10).status_code == 200
        for line in lines:
            line.close()


def test_the_client_with_the_most_unfinished_uploads_loses_its_oldest(run):
    with tiny_server.served(tiny_server.service(run, in_flight=2)) as base:  # four may be unfinished
        polite = half_open(base, "127.0.0.2")
        greedy = [half_open(base) for _ in range(4)]
        answer = greedy[0].recv(4096)
        assert b" 503 " in answer.splitlines()[0]
        assert b"retry-after" in answer.lower()
        polite.settimeout(0.5)
        with pytest.raises(TimeoutError):  # nothing was said to it
            polite.recv(1)
        for line in (polite, *greedy):
            line.close()


def test_idle_sockets_do_not_keep_others_out(run, photo):
    with tiny_server.served(tiny_server.service(run), connections=40) as base:
        idle = []
        for _ in range(70):
            idle.append(socket.create_connection(address(base), 10))
        assert httpx.get(f"{base}/api/health", timeout=10).status_code == 200
        assert tiny_server.post(base, photo, top=1).status_code == 200
        for line in idle:
            line.close()


def test_small_images_are_answered_while_costly_ones_flood_the_server(run, photo):
    """Goes on as long as the flood does; large images wait or get 503, small ones get their answer."""
    service = tiny_server.service(run, pixels=20_000_000)
    content, statuses, stop = costly(4000), [], threading.Event()
    with tiny_server.served(service) as base:
        server = os.getpid()

        def flood() -> None:
            transport = httpx.HTTPTransport(local_address="127.0.0.2")
            with httpx.Client(transport=transport, timeout=60) as client:
                while not stop.is_set():
                    with suppress(httpx.TransportError):
                        files = {"image": content}
                        statuses.append(client.post(f"{base}/api/search", files=files).status_code)
                    time.sleep(0.05)

        before = memory(server)
        threads = [threading.Thread(target=flood) for _ in range(12)]
        for thread in threads:
            thread.start()
        try:
            tiny_server.eventually(lambda: len(statuses) >= 12)
            for _ in range(10):
                assert tiny_server.post(base, photo, top=1).status_code == 200
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert set(statuses) <= {200, 503}
        assert 503 in statuses
        assert memory(server) - before < 300e6  # decoded, the flood has more than 500 MB


def memory(pid: int) -> int:
    with open(f"/proc/{pid}/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def test_a_client_that_leaves_gives_its_slot_back(run, photo):
    service = tiny_server.service(run, in_flight=1, batch=1)
    gate = threading.Event()
    embed = service.batcher._run
    service.batcher._run = lambda items: (gate.wait(20), embed(items))[1]
    with tiny_server.served(service) as base:
        with suppress(httpx.ReadTimeout):
            httpx.post(f"{base}/api/search", files={"image": photo}, timeout=0.5)
        gate.set()
        tiny_server.eventually(lambda: tiny_server.post(base, photo, top=1).status_code == 200)


def test_the_last_slots_are_for_clients_that_have_none():
    async def fill() -> int:
        slots = Slots(8)
        greedy = [asyncio.ensure_future(slots.take("a")) for _ in range(8)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError):
            await slots.take("a")
        await slots.take("b")
        with pytest.raises(ApiError):
            await slots.take("c")  # the reserve is an eighth
        greedy[-1].cancel()
        slots.release("b")
        await asyncio.sleep(0)
        await slots.take("c")
        for request in greedy:
            request.cancel()
        return slots.active

    assert asyncio.run(fill()) == 8


def test_a_quarter_of_the_slots_work_for_one_client_at_a_time():
    async def fill() -> list[int]:
        slots, working = Slots(20), []
        requests = [asyncio.ensure_future(slots.take("a")) for _ in range(8)]
        for _ in requests:
            await asyncio.sleep(0.01)
            working.append(sum(request.done() for request in requests))
            slots.release("a")
        assert slots.active == 0
        assert not slots._turns
        return working

    assert asyncio.run(fill()) == [5, 6, 7, 8, 8, 8, 8, 8]


def test_clients_take_turns():
    queue = FairQueue()
    for number in range(3):
        queue.put("a", f"a{number}")
    queue.put("b", "b0")
    queue.put("c", "c0")
    assert [queue.take() for _ in range(5)] == ["a0", "b0", "c0", "a1", "a2"]
    waiting = threading.Thread(target=queue.take)
    waiting.start()
    queue.close()
    waiting.join(5)
    assert not waiting.is_alive()


def test_a_client_takes_no_more_than_its_share():
    queue = FairQueue(share=1)
    for job in ("a1", "a2", "b1"):
        queue.put(job[0], job)
    assert [queue.take(), queue.take()] == ["a1", "b1"]
    threading.Timer(0.2, queue.done, ["a"]).start()
    assert queue.take() == "a2"


def test_bodies_in_memory_are_bounded():
    async def fill() -> tuple[bool, bool]:
        uploads = Uploads(count=10, size=1000)
        async with asyncio.timeout(10) as first_clock, asyncio.timeout(10) as second_clock:
            first, second = uploads.open("a", first_clock), uploads.open("b", second_clock)
            uploads.receive(first, 600)
            uploads.receive(second, 300)
            first.complete = True
            with pytest.raises(ApiError):  # the first is complete and stays
                uploads.receive(second, 200)
            uploads.close(first)
            uploads.receive(second, 400)
        return first.dropped, second.dropped

    assert asyncio.run(fill()) == (False, False)


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("testclient", "testclient"),
    ],
)
def test_a_client_is_an_ipv4_address_or_an_ipv6_network(host, client):
    assert client_of({"client": (host, 1)}) == client
    assert client_of({"client": None}) == "unknown"


def test_a_gallery_file_changed_in_place_changes_no_answer(run, photo, tmp_path):
    """In another process: serving from a mapping would end it with SIGBUS."""
    copy = tmp_path / "runs" / "run"
    shutil.copytree(run, copy)
    script = (
        "import sys, tiny_server, httpx; from pathlib import Path\n"
        "service = tiny_server.service(Path(sys.argv[1]))\n"
        "with tiny_server.served(service) as base:\n"
        "    ask = lambda: httpx.get(base + '/api/search?id=3&top=9', timeout=60).json()['results']\n"
        "    before = ask()\n"
        "    for file in list(Path(sys.argv[1]).rglob('*.safetensors')):\n"
        "        with open(file, 'r+b') as opened: opened.truncate(100)\n"
        "    assert ask() == before\n"
        "    about = httpx.get(base + '/api/class', params={'label': 'dark red'}, timeout=60)\n"
        "    assert about.status_code == 200\n"
        "    image = Path(sys.argv[2]).read_bytes()\n"
        "    assert tiny_server.post(base, image, top=1).status_code == 200\n"
    )
    image = run.parents[1] / "images" / "light red" / "0.png"
    paths = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src"), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", script, str(copy), str(image)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
