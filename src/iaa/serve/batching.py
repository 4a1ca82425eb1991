"""Requests gathered into batches: one worker thread, a bounded queue, no request that spoils another's."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any


class Overloaded(RuntimeError):
    """As many requests wait as may: come back later."""


class Batcher:
    """Calls ``run(items) -> results`` in one thread, for whatever waits, at most ``most`` items at a time.

    An item that comes alone waits ``gather`` seconds for company. ``submit`` never blocks: beyond ``room``
    waiting items it raises ``Overloaded``.
    """

    def __init__(
        self,
        run: Callable[[list[Any]], Sequence[Any]],
        *,
        most: int = 16,
        gather: float = 0.004,
        room: int = 64,
    ) -> None:
        for name, value in (("most", most), ("room", room)):
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")
        self._run, self._most, self._gather = run, most, gather
        self._waiting: queue.Queue[tuple[Any, Future[Any]] | None] = queue.Queue(room)
        self._closed = False
        self._lock = threading.Lock()
        self.batches, self.items = 0, 0
        """How many batches ran and how many items were in them."""
        self._thread = threading.Thread(target=self._work, name="iaa-batcher", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return self._waiting.qsize()

    def submit(self, item: Any) -> "Future[Any]":
        """A promise of the item's result."""
        future: Future[Any] = Future()
        with self._lock:  # nothing may queue up behind the end
            if self._closed:
                raise Overloaded("the server is stopping")
            try:
                self._waiting.put_nowait((item, future))
            except queue.Full:
                raise Overloaded(f"{self._waiting.maxsize} requests are waiting already") from None
        return future

    def close(self, timeout: float | None = 10.0) -> None:
        """Finish what waits, then end the thread; safe to call twice."""
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._waiting.put(None)
        self._thread.join(timeout)

    def _work(self) -> None:
        ending = False
        while not ending:
            batch, ending = self._next()
            kept = [(item, future) for item, future in batch if future.set_running_or_notify_cancel()]
            if kept:
                self.batches, self.items = self.batches + 1, self.items + len(kept)
                self._answer(kept)

    def _next(self) -> tuple[list[tuple[Any, "Future[Any]"]], bool]:
        """The next batch, and whether it is the last."""
        batch: list[tuple[Any, Future[Any]]] = []
        until = None
        while len(batch) < self._most:
            left = None if until is None else max(until - time.monotonic(), 0)
            try:
                entry = self._waiting.get(block=left != 0, timeout=left)
            except queue.Empty:
                break
            if entry is None:
                return batch, True
            batch.append(entry)
            until = until or time.monotonic() + self._gather
        return batch, False

    def _answer(self, batch: list[tuple[Any, "Future[Any]"]]) -> None:
        try:
            results = self._run([item for item, _ in batch])
            if len(results) != len(batch):
                raise RuntimeError(f"{len(results)} results for {len(batch)} items")
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
            else:  # whichever item is to blame, the others get their answer
                for one in batch:
                    self._answer([one])
            return
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(result)
