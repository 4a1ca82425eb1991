"""The HTTP server: binding its address, and uvicorn with the limits of this package."""

import errno
import ipaddress
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvicorn

from iaa.serve.http_protocol import limited_protocol

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
    """A socket bound to an address, or an error that says why not; port 0 is any free one."""
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
        http=limited_protocol(
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
