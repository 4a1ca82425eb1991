"""The HTTP server: its address, limits for connections, and JSON where a request is not valid HTTP."""

import asyncio
import errno
import ipaddress
import itertools
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from iaa.serve.access import HEALTH
from iaa.serve.api_errors import ApiError, error_body, send_error
from iaa.serve.limits import client_of
from iaa.serve.middleware import ENCODED_HEADERS

CONNECTIONS = 512
"""Open at the same time; a browser opens six. Idle ones make room for new ones."""
HEADER_SECONDS = 10.0
"""From the start of a connection, or the first byte of its next request, to the end of the headers."""
WRITE_SECONDS = 30.0
"""In which a client must read at least some of its response."""
STOP_SECONDS = 5


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens on an address, or an error that says why not; port 0 is any free one.

    It listens before anything is loaded: two sockets that only bind could share a port until then.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must lie in [0, 65535], got {port}")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise ValueError(f"--host {host} is not an address of this machine: {error}") from error
    # if the protocol is not named, asyncio leaves Nagle's algorithm on, and small responses take 40 ms
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen()
    except OSError as error:
        bound.close()
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRNOTAVAIL:
            raise ValueError(f"--host {host} is not an address of this machine ({reason})") from error
        raise ValueError(f"cannot listen on {host}:{port} ({reason}): --port 0 picks a free one") from error
    return bound


def url(bound: socket.socket) -> str:
    """The URL to open in a browser."""
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def make_server(
    app: Any,
    *,
    on_start: Callable[[], None] = lambda: None,
    header_seconds: float = HEADER_SECONDS,
    write_seconds: float = WRITE_SECONDS,
    connections: int = CONNECTIONS,
) -> "uvicorn.Server":
    """A uvicorn server without an access log; it calls ``on_start`` once it accepts requests."""

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_start()

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        http=_limited_protocol(
            header_seconds=header_seconds, write_seconds=write_seconds, connections=connections
        ),
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_keep_alive=30,
    )
    return Server(config)


def has_screen() -> bool:
    """Whether there is a screen to open a browser on."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _limited_protocol(*, header_seconds: float, write_seconds: float, connections: int) -> type[H11Protocol]:
    """uvicorn's HTTP protocol with limits, so that idle or stalled sockets do not keep others out.

    A connection is closed if its headers are not complete within ``header_seconds``, or if its client reads
    nothing of a response for ``write_seconds``. Beyond ``connections``, the oldest idle one of the client
    with the most of them is closed.
    """

    class LimitedProtocol(H11Protocol):
        numbers = itertools.count()
        header_timer: asyncio.TimerHandle | None = None
        write_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.number, self.client_key = next(self.numbers), client_of({"client": self.client})
            transport.set_write_buffer_limits(0)  # so that unsent data is always noticed
            self._watch_headers()
            if len(self.connections) > connections:
                self._close_an_idle_connection()

        def data_received(self, data: bytes) -> None:
            is_full = len(self.connections) > connections
            self.app = self._health_only if is_full else self.config.loaded_app
            super().data_received(data)
            self._watch_headers()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.conn.trailing_data[0]:  # part of the next request came before this response
                self._watch_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_header_timer()
            self._stop_write_timer()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._watch_writing(self.transport.get_write_buffer_size())

        def resume_writing(self) -> None:
            self._stop_write_timer()
            super().resume_writing()

        def send_400_response(self, msg: str) -> None:
            """Answer what is not valid HTTP with JSON; called while h11's error is being handled."""
            error = sys.exc_info()[1]
            cycle, started = self.cycle, False
            if cycle is not None and not cycle.response_complete:
                started, cycle.disconnected = cycle.response_started, True
                cycle.message_event.set()  # the application stops reading a body that never ends
            if not started and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                status = getattr(error, "error_status_hint", 400)
                body = error_body(f"the request is not valid HTTP: {error or msg}")
                headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
                headers += [(b"content-length", str(len(body)).encode()), *ENCODED_HEADERS]
                reason = HTTPStatus(status).phrase.encode()
                for event in (
                    h11.Response(status_code=status, headers=headers, reason=reason),
                    h11.Data(data=body),
                    h11.EndOfMessage(),
                ):
                    self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

        @property
        def is_idle(self) -> bool:
            """Whether no request is being received or answered; headers in part do not count."""
            return self.conn.their_state is h11.IDLE

        def _close_an_idle_connection(self) -> None:
            others: list[Any] = [other for other in self.connections if other is not self]
            idle = [other for other in others if other.is_idle and not other.transport.is_closing()]
            if idle:
                clients = Counter(other.client_key for other in idle)
                oldest = min(idle, key=lambda other: (-clients[other.client_key], other.number))
                oldest.transport.abort()

        async def _health_only(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["path"] == HEALTH:
                await self.config.loaded_app(scope, receive, send)
                return
            error = ApiError(503, "too many connections are open; try again in a moment")
            error.headers = {**(error.headers or {}), "Connection": "close"}
            await send_error(send, error)

        def _watch_writing(self, unsent: int) -> None:
            """Abort the connection if none of the unsent bytes are read; closing would wait for them."""

            def check() -> None:
                still_unsent = self.transport.get_write_buffer_size()
                if still_unsent < unsent:
                    self._watch_writing(still_unsent)
                else:
                    self.transport.abort()

            self.write_timer = self.loop.call_later(write_seconds, check)

        def _stop_write_timer(self) -> None:
            if self.write_timer is not None:
                self.write_timer.cancel()
                self.write_timer = None

        def _watch_headers(self) -> None:
            if self.conn.their_state is not h11.IDLE:  # the headers are complete; the middleware takes over
                self._stop_header_timer()
            elif self.header_timer is None:
                self.header_timer = self.loop.call_later(header_seconds, self.transport.close)

        def _stop_header_timer(self) -> None:
            if self.header_timer is not None:
                self.header_timer.cancel()
                self.header_timer = None

    return LimitedProtocol
