"""What stands before the application: who may ask, how much they may send, and what the answers forbid."""

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "manifest-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
}
RETRY_AFTER = 1
LINGER_SECONDS = 1.0


class Refused(HTTPException):
    """A request that gets no further, with the status and the one sentence it is told."""

    def __init__(self, status: int, message: str) -> None:
        headers = {"Retry-After": str(RETRY_AFTER)} if status == 503 else None
        super().__init__(status, message, headers)


class Guard:
    """ASGI middleware: checks host and origin, bounds body, time and the number of requests in flight.

    ``hosts=None`` lets any name through, for a server that is meant to be reached from elsewhere. On loopback
    the check is what keeps a foreign page from reaching in by renaming itself (DNS rebinding).
    """

    def __init__(
        self, app: Any, *, hosts: Iterable[str] | None, upload: int, seconds: float, in_flight: int
    ) -> None:
        self.app, self.upload, self.seconds, self.in_flight = app, upload, seconds, in_flight
        self.hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self.active = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False
        body = _Body(receive, self.upload, whole=scope["method"] in ("GET", "HEAD"))

        async def guarded_send(message: Any) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), *_ENCODED]
                if not body.whole:  # what is still to come is not waited for
                    message["headers"].append((b"connection", b"close"))
            elif not body.whole and not message.get("more_body"):
                await send({**message, "more_body": True})
                await body.drain()
                message = {"type": "http.response.body"}
            await send(message)

        works = scope["path"].startswith("/api/") and scope["path"] != "/api/health"
        try:
            self._admit(scope)
            if works and self.active >= self.in_flight:
                raise Refused(
                    503, f"{self.active} requests are being answered already: try again in a moment"
                )
            self.active += works
            try:
                async with asyncio.timeout(self.seconds):
                    await self.app(scope, body, guarded_send)
            finally:
                self.active -= works
        except Refused as error:
            if not started:
                await answer(guarded_send, error)
        except TimeoutError:
            if not started:
                late = "the request did not arrive" if not body.whole else "there was no answer"
                status = 503 if body.whole else 408
                await answer(guarded_send, Refused(status, f"{late} within {self.seconds:g} seconds"))

    def _admit(self, scope: Any) -> None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if self.hosts is not None and _name(host) not in self.hosts:
            raise Refused(421, f"this server does not answer to the name {host[:100]!r}")
        site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
        foreign = site in ("cross-site", "same-site") or (
            site is None and origin is not None and _place(origin) != host.lower()
        )
        if scope["method"] not in ("GET", "HEAD") and foreign:
            raise Refused(403, "pages of other sites may not send requests here")
        length = headers.get(b"content-length", "")
        if length.isdecimal() and int(length) > self.upload:
            raise Refused(413, _too_large(self.upload))


class _Body:
    """``receive`` that refuses a body as soon as it is longer than it may be, whatever it announced."""

    def __init__(self, receive: Any, limit: int, *, whole: bool) -> None:
        self.receive, self.limit, self.seen, self.whole = receive, limit, 0, whole

    async def __call__(self) -> Any:
        """The next part of the body."""
        message = await self.receive()
        if message["type"] == "http.request":
            self.seen += len(message.get("body", b""))
            self.whole = not message.get("more_body", False)
            if self.seen > self.limit:
                raise Refused(413, _too_large(self.limit))
        return message

    async def drain(self) -> None:
        """Read on for a moment: who still sends when the line is closed never sees the answer."""
        drained = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while drained < self.limit:
                    message = await self.receive()
                    drained += len(message.get("body", b""))
                    if not message.get("more_body"):
                        break


async def answer(send: Any, error: HTTPException) -> None:
    """The JSON of a refusal."""
    body = json.dumps({"error": error.detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    await send({"type": "http.response.start", "status": error.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _too_large(limit: int) -> str:
    return f"the upload is larger than {limit / 2**20:.2g} MB"


def _place(origin: str) -> str:
    """Host and port of an origin; nothing for what is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _name(host: str) -> str:
    """The host without its port: ``[::1]:8000`` is ``::1``."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


_ENCODED = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
