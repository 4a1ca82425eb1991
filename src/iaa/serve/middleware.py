"""ASGI middleware in front of the application: access, body size, time and the number of requests."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from iaa.serve.access import HEALTH, Access
from iaa.serve.api_errors import ApiError, send_error
from iaa.serve.limits import Limits, Slots, Upload, Uploads, client_of

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
ENCODED_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
UNFINISHED_PER_SLOT = 2
"""Unfinished uploads for every request that may run; they cost only memory."""
BODIES_IN_MEMORY = 16
"""Uploads of the largest size that may be in memory at the same time."""
DRAIN_SECONDS, DRAIN_PAUSE, DRAIN_SIZE = 10.0, 1.0, 16
"""How long the rest of a refused upload is read, the longest pause in it, and how many times the limit."""


class Guard:
    """Checks each request, receives its body, and only then gives it a slot and passes it on.

    A slow or stalled upload holds no slot. ``/api/health`` needs none either, so it is never refused.
    """

    def __init__(self, app: Any, *, access: Access, limits: Limits) -> None:
        self.app, self.access, self.limits = app, access, limits
        self.slots = Slots(limits.in_flight)
        self.uploads = Uploads(
            count=UNFINISHED_PER_SLOT * limits.in_flight, size=BODIES_IN_MEMORY * limits.upload_bytes
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        drain = DRAIN_SIZE * self.limits.upload_bytes
        exchange = _Exchange(receive, send, complete=scope["method"] in ("GET", "HEAD"), drain=drain)
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        upload: Upload | None = None
        try:
            async with asyncio.timeout(self.limits.seconds) as clock:
                self.access.check(scope["method"], scope["path"], headers)
                length = headers.get(b"content-length", "")
                if length.isdecimal() and int(length) > self.limits.upload_bytes:
                    raise _too_large(self.limits.upload_bytes)
                upload = self.uploads.open(client_of(scope), clock)
                if not await self._receive_body(exchange, upload):
                    return  # the client is gone
                if scope["path"] == HEALTH and not self.access.is_authorized(headers):
                    await _send_alive(exchange.send)
                else:
                    await self._run(scope, exchange, upload.client)
        except ApiError as error:
            await self._refuse(exchange, error)
        except TimeoutError:
            await self._refuse(exchange, self._late(exchange, upload))
        except asyncio.CancelledError:  # the server stops and does not wait any longer
            await self._refuse(exchange, ApiError(503, "the server is stopping"))
        except Exception:  # the application has logged and answered it
            if not exchange.started:
                raise
        finally:
            if upload is not None:
                self.uploads.close(upload)

    async def _receive_body(self, exchange: "_Exchange", upload: Upload) -> bool:
        """Receive the whole body; False if the client disconnects before its end."""
        while not upload.complete:
            message = await exchange.receive()
            if message["type"] == "http.disconnect":
                return False
            part = message.get("body", b"")
            exchange.parts.append(part)
            self.uploads.receive(upload, len(part))
            if upload.size > self.limits.upload_bytes:
                raise _too_large(self.limits.upload_bytes)
            upload.complete = exchange.complete = not message.get("more_body", False)
        return True

    async def _run(self, scope: Any, exchange: "_Exchange", client: str) -> None:
        """Run the application, and stop it if the client disconnects."""
        needs_slot = scope["path"].startswith("/api/") and scope["path"] != HEALTH
        if needs_slot:
            await self.slots.take(client)
            exchange.on_end = lambda: self.slots.release(client)
        try:
            work = asyncio.ensure_future(self.app(scope, exchange.replay, exchange.send))
            gone = asyncio.ensure_future(exchange.disconnected())
            try:
                await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    work.result()
            finally:
                for task in (work, gone):
                    task.cancel()
                await asyncio.gather(work, gone, return_exceptions=True)
        finally:
            exchange.end()

    async def _refuse(self, exchange: "_Exchange", error: ApiError) -> None:
        if not exchange.started:
            await send_error(exchange.send, error)

    def _late(self, exchange: "_Exchange", upload: Upload | None) -> ApiError:
        if upload is not None and upload.dropped:
            return ApiError(503, "the upload was dropped, because too many are unfinished; try again")
        seconds = f"within {self.limits.seconds:g} seconds"
        if not exchange.complete:
            return ApiError(408, f"the request did not arrive {seconds}")
        return ApiError(503, f"there was no response {seconds}")


class _Exchange:
    """A request and its response: remembers the body, adds headers, and lets a refusal be heard."""

    def __init__(self, receive: Any, send: Any, *, complete: bool, drain: int) -> None:
        self.receive, self._send = receive, send
        self.parts: list[bytes] = []
        self.complete, self.started = complete, False
        self._drains, self._drain_size = False, drain
        self.on_end: Callable[[], None] | None = None

    async def replay(self) -> Any:
        """``receive`` for the application: the body, and then nothing more."""
        if not self.parts:
            await asyncio.Event().wait()  # cancelled together with the application
        parts, self.parts = self.parts, []
        return {"type": "http.request", "body": b"".join(parts), "more_body": False}

    def end(self) -> None:
        """Call ``on_end``, once."""
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()

    async def disconnected(self) -> None:
        """Wait until the client is gone or has its response."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def send(self, message: Any) -> None:
        """``send`` with the security headers; after a refusal the rest of the body is read and discarded."""
        if message["type"] == "http.response.start":
            self.started = True
            self._drains = not self.complete and message["status"] not in (408, 503)
            message["headers"] = [*message.get("headers", ()), *ENCODED_HEADERS]
            if not self.complete:
                message["headers"].append((b"connection", b"close"))
        elif self._drains and not message.get("more_body"):
            self.parts.clear()
            await self._send({**message, "more_body": True})
            await self._drain()
            message = {"type": "http.response.body"}
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.end()  # a client that has its response may send the next request at once
        await self._send(message)

    async def _drain(self) -> None:
        """Read on for a while: many clients read the response only after they have sent everything."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                size = 0
                while size < self._drain_size:
                    async with asyncio.timeout(DRAIN_PAUSE):
                        message = await self.receive()
                    size += len(message.get("body", b""))
                    if not message.get("more_body"):
                        return


async def _send_alive(send: Any) -> None:
    """What a stranger may know of a server with a token."""
    body = json.dumps({"status": "ok"}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"the upload is larger than {limit / 2**20:.2g} MB")
