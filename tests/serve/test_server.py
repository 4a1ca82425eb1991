"""Connections that say nothing, or not all, do not stay."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from iaa.serve.server import bind, make_server

MUCH = 32 * 2**20
WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def app(scope, receive, send):
    """Answers after half a second; a lot if asked for much."""
    if scope["type"] == "lifespan":
        for what in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{what}.complete"})
        return
    await asyncio.sleep(0.5)
    body = bytes(MUCH) if scope["path"] == "/much" else b"ok"
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def served(**options: float) -> Iterator[int]:
    with bind("127.0.0.1", 0) as bound:
        started = threading.Event()
        server = make_server(app, on_start=started.set, **options)
        thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
        thread.start()
        try:
            assert started.wait(30)
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)


def read_until_closed(line: socket.socket) -> bytes:
    parts = []
    while part := line.recv(4096):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("sent", [b"", WHOLE[:20]])
def test_a_connection_without_headers_is_closed(sent):
    with served(header_seconds=0.3) as port, socket.create_connection(("127.0.0.1", port), 5) as line:
        line.sendall(sent)
        assert read_until_closed(line) == b""  # a time-out would raise


def test_headers_sent_byte_by_byte_get_no_more_time():
    with served(header_seconds=0.3) as port, socket.create_connection(("127.0.0.1", port), 0.1) as line:
        began, closed = time.monotonic(), False
        while not closed and time.monotonic() < began + 5:
            try:
                line.sendall(b"G")
                closed = line.recv(1) == b""
            except TimeoutError:
                pass
            except OSError:
                closed = True
        assert closed


def test_a_slow_response_is_allowed_and_the_next_headers_have_a_limit():
    with served(header_seconds=0.3) as port, socket.create_connection(("127.0.0.1", port), 5) as line:
        line.sendall(WHOLE)
        assert b" 200 " in read_until_some(line, b"ok")
        time.sleep(0.4)  # idle between two requests: that is another limit
        line.sendall(WHOLE[:20])
        time.sleep(0.05)
        line.sendall(WHOLE[20:])
        assert read_until_some(line, b"ok").endswith(b"ok")
        line.sendall(WHOLE[:20])
        assert read_until_closed(line) == b""


def test_headers_pipelined_before_the_last_response_have_a_limit():
    with served(header_seconds=0.3) as port, socket.create_connection(("127.0.0.1", port), 5) as line:
        line.sendall(WHOLE + WHOLE[:20])
        assert read_until_closed(line).endswith(b"ok")


def read_until_some(line: socket.socket, end: bytes) -> bytes:
    result = b""
    while not result.endswith(end):
        part = line.recv(4096)
        assert part
        result += part
    return result


def test_a_client_that_reads_nothing_is_disconnected():
    with served(write_seconds=0.3) as port, socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(10)
        line.connect(("127.0.0.1", port))
        line.sendall(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(3)
        assert len(read_until_closed(line)) < MUCH  # what was under way


def test_a_client_that_reads_slowly_gets_the_whole_response():
    with served(write_seconds=1.5) as port, socket.create_connection(("127.0.0.1", port), 10) as line:
        line.sendall(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")
        got = 0
        while got < MUCH:
            time.sleep(0.08)
            got += len(line.recv(2**20))
        assert got > MUCH


def test_a_connection_beyond_the_limit_is_refused_in_json_except_for_health():
    with served(connections=1) as port, socket.create_connection(("127.0.0.1", port), 5) as busy:
        busy.sendall(WHOLE)
        time.sleep(0.1)
        answer = httpx.get(f"http://127.0.0.1:{port}/", timeout=10)
        assert answer.status_code == 503
        assert "too many connections" in json.loads(answer.text)["error"]
        assert answer.headers["retry-after"] == "1"
        busy.sendall(WHOLE)
        assert httpx.get(f"http://127.0.0.1:{port}/api/health", timeout=10).text == "ok"


def test_idle_connections_make_room_for_new_ones():
    with served(connections=3) as port:
        idle = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(3)]
        idle[2].sendall(WHOLE[:20])  # half of the headers is still idle
        time.sleep(0.1)
        for _ in range(5):
            assert httpx.get(f"http://127.0.0.1:{port}/", timeout=10).status_code == 200
        assert idle[0].recv(1) == b""  # the oldest was closed
        for line in idle:
            line.close()


def test_the_client_with_the_most_idle_connections_loses_one():
    with served(connections=4) as port:
        other = socket.create_connection(("127.0.0.1", port), 5, source_address=("127.0.0.2", 0))
        many = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(3)]
        time.sleep(0.1)
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=10).status_code == 200
        other.sendall(WHOLE)  # the oldest of all, but the only one of its client
        assert b" 200 " in read_until_some(other, b"ok")
        assert many[0].recv(1) == b""
        for line in (other, *many):
            line.close()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnot hex\r\nabc\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n",
        b"GET /" + b"a" * 100_000,
    ],
    ids=["nonsense", "two hosts", "chunk size", "chunk end", "long"],
)
def test_invalid_http_gets_json_and_no_traceback(request_bytes, caplog):
    with served() as port, socket.create_connection(("127.0.0.1", port), 5) as line:
        line.sendall(request_bytes)
        head, _, body = read_until_closed(line).partition(b"\r\n\r\n")
        assert head.split()[1] in (b"400", b"431")
        assert b"content-type: application/json" in head.lower()
        assert b"x-content-type-options: nosniff" in head.lower()
        assert "not valid HTTP" in json.loads(body)["error"]
    assert "Traceback" not in caplog.text
    assert all(record.exc_info is None for record in caplog.records)


def test_a_second_server_is_refused_while_the_first_still_loads():
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(
            ValueError, match=f"cannot listen on 127.0.0.1:{port} .*--port 0 picks a free one"
        ):
            bind("127.0.0.1", port)
