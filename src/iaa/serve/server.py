"""A server on a socket: bound before anything is told, stopped by Ctrl-C without a word too many."""

import errno
import ipaddress
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvicorn

from iaa.serve.http_protocol import protocol

CONNECTIONS = 512
"""Open at one time; a page has six, a phone's as well."""
HEADER_SECONDS = 10.0
"""From a connection, or the first byte of its next request, until all headers are there."""
READING_SECONDS = 30.0
"""In which a client takes at least something of its answer."""
STOP_SECONDS = 5


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def bind(host: str, port: int) -> socket.socket:
    """A listening address, or one line that says why not; port 0 is any free one."""
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must lie in [0, 65535], got {port}")
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise ValueError(f"--host {host} is no address of this machine: {error}") from error
    # told that it is TCP, asyncio sends small answers at once; else each waits 40 ms for an acknowledgement
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
    except OSError as error:
        bound.close()
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRNOTAVAIL:
            raise ValueError(f"--host {host} is no address of this machine ({reason})") from error
        raise ValueError(f"cannot listen at {host}:{port} ({reason}): --port 0 takes a free one") from error
    return bound


def address(bound: socket.socket) -> str:
    """What to type into a browser."""
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "localhost"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def make_server(
    app: Any,
    *,
    on_start: Callable[[], None] = lambda: None,
    header_seconds: float = HEADER_SECONDS,
    reading_seconds: float = READING_SECONDS,
    connections: int = CONNECTIONS,
) -> "uvicorn.Server":
    """A uvicorn server without access log, that calls ``on_start`` once it answers."""

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
        http=protocol(seconds=header_seconds, patience=reading_seconds, connections=connections),
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_keep_alive=30,
    )
    return Server(config)


def can_show_pages() -> bool:
    """Whether there is a screen to open a browser on."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
