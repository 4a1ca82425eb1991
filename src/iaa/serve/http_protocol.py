"""How long a connection may take to say what it wants, and how many there may be."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from iaa.serve.middleware import Refused, answer


def protocol(*, seconds: float, patience: float, connections: int) -> type[H11Protocol]:
    """uvicorn's HTTP, which closes a connection whose headers are not whole within ``seconds``.

    So it does with one that takes nothing of its answer for ``patience`` seconds. Without either, sockets
    that send half a request or do not listen would hold all ``connections`` for ever.
    """

    class Patient(H11Protocol):
        waiting: asyncio.TimerHandle | None = None
        stalling: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            transport.set_write_buffer_limits(0)  # so that anything unsent is heard of
            self._watch()

        def data_received(self, data: bytes) -> None:
            full = len(self.connections) > connections
            self.app = _refuse if full else self.config.loaded_app
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.conn.trailing_data[0]:  # half of the next request came before this answer
                self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._calm()
            self._flows()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stall(self.transport.get_write_buffer_size())

        def resume_writing(self) -> None:
            self._flows()
            super().resume_writing()

        def _stall(self, unsent: int) -> None:
            """Give up an answer of which nothing was taken for a while; closing would wait for it."""

            def look() -> None:
                now = self.transport.get_write_buffer_size()
                self._stall(now) if now < unsent else self.transport.abort()

            self.stalling = self.loop.call_later(patience, look)

        def _flows(self) -> None:
            if self.stalling is not None:
                self.stalling.cancel()
                self.stalling = None

        def _watch(self) -> None:
            if self.conn.their_state is not h11.IDLE:  # the headers are there: the guard has its own clock
                self._calm()
            elif self.waiting is None:
                self.waiting = self.loop.call_later(seconds, self.transport.close)

        def _calm(self) -> None:
            if self.waiting is not None:
                self.waiting.cancel()
                self.waiting = None

    return Patient


async def _refuse(scope: Any, receive: Any, send: Any) -> None:
    error = Refused(503, "too many connections are open: try again in a moment")
    error.headers = {**(error.headers or {}), "Connection": "close"}
    await answer(send, error)
