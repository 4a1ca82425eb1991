"""Worker processes that decode uploads, in a lane for small images and one for large images.

An image that takes too long, or that nobody waits for any more, is abandoned by ending its process. The
server itself never holds decoded images, and a decoder that crashes costs one request.
"""

import asyncio
import json
import multiprocessing
import os
import threading
import time
from collections import Counter
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver
from typing import Any

import torch
from torch import Tensor

from iaa.serve.api_errors import ApiError
from iaa.serve.decoding import SMALL_PIXELS, LargeImage, decode_forever
from iaa.serve.limits import FairQueue

SMALL_SECONDS = 2.0
"""An image of the lane for small ones that takes longer continues in the other lane."""
QUEUED_IMAGES = 8
"""Images of the largest size that may wait in the lane for large ones."""
LARGE_NICENESS = 10
"""Large images give way to everything else on the machine's processors."""
ABANDON_SECONDS = 0.5
"""An image that nobody waits for any more is decoded for this long: a new process costs time as well."""
START_SECONDS = 120.0


class _TooSlow(Exception):
    pass  # not a TimeoutError, which is an OSError as those of a broken connection


@dataclass(eq=False)
class _Job:
    content: bytes
    client: str
    cost: int = 0
    abandoned: bool = False
    future: "Future[Tensor]" = field(default_factory=Future)


class DecodePool:
    """Decodes uploads in processes of their own: ``await pool.prepare(content, client)``.

    A large image must fit into a budget of waiting pixels, of which a client gets half; a client that has no
    large image waiting always gets one in.
    """

    def __init__(
        self,
        preprocessing: dict[str, Any],
        *,
        pixels: int,
        seconds: float,
        small_workers: int | None = None,
        large_workers: int | None = None,
    ) -> None:
        cores = os.cpu_count() or 1
        self._budget = QUEUED_IMAGES * pixels
        self._costs: Counter[str] = Counter()
        self._lock = threading.Lock()
        arguments = (preprocessing, pixels)
        small_seconds = min(SMALL_SECONDS, seconds)
        self._small = _Lane(small_workers or min(4, cores) + 1, arguments, small_seconds, SMALL_PIXELS, 0)
        self._large = _Lane(
            large_workers or max(1, min(4, cores // 2)), arguments, seconds, 0, LARGE_NICENESS
        )

    async def prepare(self, content: bytes, client: str) -> Tensor:
        """The pixels of an image file as the network takes them, or an ``ApiError``."""
        try:
            return await self._small.run(_Job(content, client))
        except LargeImage as large:
            cost = large.cost
        except _TooSlow:  # few pixels, but made to be slow
            cost = SMALL_PIXELS
        job = _Job(content, client, cost)
        self._admit(job)
        try:
            return await self._large.run(job)
        except _TooSlow as error:
            raise ApiError(413, "the image takes too long to decode") from error
        finally:
            with self._lock:
                self._costs[client] -= cost

    def processes(self) -> list[int]:
        """Ids of the worker processes that are running."""
        workers = [*self._small.workers, *self._large.workers]
        return [pid for worker in workers if (pid := worker.pid) is not None]

    def close(self) -> None:
        """End all workers; what still waits fails with 503."""
        for lane in (self._small, self._large):
            lane.close()

    def _admit(self, job: _Job) -> None:
        with self._lock:
            own, total = self._costs[job.client], self._costs.total()
            if own and (own + job.cost > self._budget // 2 or total + job.cost > self._budget):
                raise ApiError(503, "too many large images are waiting to be decoded; try again in a moment")
            self._costs[job.client] += job.cost


class _Lane:
    """A queue and the workers that serve it; one of several is always left to other clients."""

    def __init__(
        self, workers: int, arguments: tuple[Any, ...], seconds: float, at_once: int, niceness: int
    ) -> None:
        self.queue = FairQueue(share=max(1, workers - 1))
        self.workers = [_Worker(self.queue, (*arguments, niceness), seconds, at_once) for _ in range(workers)]

    async def run(self, job: _Job) -> Tensor:
        """Wait for a job's result; a caller that is cancelled takes the job with it."""
        self.queue.put(job.client, job)
        try:
            return await asyncio.wrap_future(job.future)
        finally:
            job.abandoned = True

    def close(self) -> None:
        for job in self.queue.close():
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(ApiError(503, "the server is stopping"))
        for worker in self.workers:
            worker.close()


class _Worker:
    """One process and the thread that hands it jobs and ends it when a job takes too long."""

    def __init__(self, queue: FairQueue, arguments: tuple[Any, ...], seconds: float, at_once: int) -> None:
        self._queue, self._arguments, self._seconds, self._at_once = queue, arguments, seconds, at_once
        self._process: Any = None
        self._connection: Any = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="iaa-decode", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Id of the process, if there is one."""
        process = self._process
        return None if process is None else process.pid

    def close(self) -> None:
        """End the process and the thread."""
        self._closed = True
        self._thread.join()

    def _work(self) -> None:
        self._start()
        while (job := self._queue.take()) is not None:
            if not job.future.set_running_or_notify_cancel():
                self._queue.done(job.client)
                continue
            try:
                job.future.set_result(self._decode(job))
            except BaseException as error:  # the thread goes on, whatever happened to one image
                job.future.set_exception(error)
            self._queue.done(job.client)
        self._stop()

    def _decode(self, job: _Job) -> Tensor:
        fresh = self._process is None or not self._process.is_alive()
        if fresh:
            self._start()
        began = time.monotonic()
        try:
            self._connection.send_bytes(self._at_once.to_bytes(8, "little"))
            self._connection.send_bytes(job.content)
            while not self._connection.poll(0.05):
                elapsed = time.monotonic() - began
                useless = job.abandoned and elapsed > ABANDON_SECONDS
                if elapsed > self._seconds or useless or self._closed:
                    self._stop()
                    raise _TooSlow
            reply = json.loads(self._connection.recv_bytes(2**16))
            if "shape" in reply:
                pixels = bytearray(self._connection.recv_bytes())
                return torch.frombuffer(pixels, dtype=torch.uint8).view(reply["shape"])
        except (OSError, EOFError, ValueError) as error:  # the process has crashed
            self._stop()
            if not fresh:  # it may have died before this image came
                return self._decode(job)
            raise ApiError(422, "the image cannot be read: its decoder failed") from error
        if "cost" in reply:
            raise LargeImage(int(reply["cost"]))
        raise ApiError(int(reply["status"]), str(reply["message"]))

    def _start(self) -> None:
        self._stop()
        context: Any = _context()
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=decode_forever, args=(theirs, *self._arguments), name="iaa-decode", daemon=True
        )
        self._process.start()
        theirs.close()
        deadline = time.monotonic() + START_SECONDS
        with suppress(OSError, EOFError):
            while not self._closed and time.monotonic() < deadline:
                if self._connection.poll(0.1):
                    self._connection.recv_bytes()
                    break

    def _stop(self) -> None:
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
            self._process.close()
            self._process = self._connection = None


def preload() -> None:
    """Start the process that workers are forked from, so that it imports the decoders in the meantime."""
    if _context().get_start_method() == "forkserver":
        forkserver.ensure_running()


def _context() -> Any:
    """Processes forked from a clean one, which has imported the decoders; elsewhere they start afresh."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["iaa.serve.decoding"])
    return context
