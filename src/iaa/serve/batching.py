"""Dynamic batching: requests are gathered into batches by one thread with a bounded queue."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any


class Overloaded(RuntimeError):
    """The queue is full, or closed."""


class Batcher:
    """Calls ``run(items) -> results`` in one thread, with up to ``max_items`` of those that wait.

    The first item of a batch waits ``gather_seconds`` for others. ``submit`` never blocks: with
    ``max_waiting`` items in the queue it raises ``Overloaded``.
    """

    def __init__(
        self,
        run: Callable[[list[Any]], Sequence[Any]],
        *,
        max_items: int = 16,
        gather_seconds: float = 0.004,
        max_waiting: int = 64,
    ) -> None:
        for name, value in (("max_items", max_items), ("max_waiting", max_waiting)):
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")
        self._run, self._max_items, self._gather_seconds = run, max_items, gather_seconds
        self._waiting: queue.Queue[tuple[Any, Future[Any]] | None] = queue.Queue(max_waiting)
        self._closed = False
        self._lock = threading.Lock()
        self.batches, self.items = 0, 0
        """How many batches ran, and how many items were in them."""
        self._thread = threading.Thread(target=self._work, name="iaa-batcher", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return self._waiting.qsize()

    def submit(self, item: Any) -> "Future[Any]":
        """The future result of an item."""
        future: Future[Any] = Future()
        with self._lock:  # nothing may follow the end marker
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
            batch, ending = self._next_batch()
            wanted = [(item, future) for item, future in batch if future.set_running_or_notify_cancel()]
            if wanted:
                self.batches, self.items = self.batches + 1, self.items + len(wanted)
                self._run_batch(wanted)

    def _next_batch(self) -> tuple[list[tuple[Any, "Future[Any]"]], bool]:
        """The next batch, and whether it is the last."""
        batch: list[tuple[Any, Future[Any]]] = []
        deadline = None
        while len(batch) < self._max_items:
            remaining = None if deadline is None else max(deadline - time.monotonic(), 0)
            try:
                entry = self._waiting.get(block=remaining != 0, timeout=remaining)
            except queue.Empty:
                break
            if entry is None:
                return batch, True
            batch.append(entry)
            deadline = deadline or time.monotonic() + self._gather_seconds
        return batch, False

    def _run_batch(self, batch: list[tuple[Any, "Future[Any]"]]) -> None:
        try:
            results = self._run([item for item, _ in batch])
            if len(results) != len(batch):
                raise RuntimeError(f"{len(results)} results for {len(batch)} items")
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
            else:  # one item may be to blame; the others get their result
                for entry in batch:
                    self._run_batch([entry])
            return
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(result)
