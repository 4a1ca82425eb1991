"""How much a request may cost, how many there may be at the same time, and a fair share for every client."""

import asyncio
import ipaddress
import itertools
import math
import threading
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

from iaa.serve.api_errors import ApiError


@dataclass(frozen=True)
class Limits:
    """Every limit of the server."""

    upload_bytes: int = 20 * 2**20
    pixels: int = 25_000_000
    """Pixels to decode; a JPEG counts up to four times less, because it is reduced while it is decoded."""
    seconds: float = 30.0
    """From the first byte of a request to its response."""
    decode_seconds: float = 10.0
    """After which the decoding of an upload is abandoned."""
    in_flight: int = 64
    """Requests that are answered at the same time; others get 503."""
    batch: int = 16
    """Images that go through the network together."""
    gather_seconds: float = 0.004
    """How long an image waits for others to share its batch."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < math.inf or (value == 0 and name != "gather_seconds"):
                raise ValueError(f"{name} must be more than 0 and finite, got {value}")


def client_of(scope: Any) -> str:
    """Who sends a request: its IP address, or the /64 network of an IPv6 address."""
    host = (scope.get("client") or ("unknown", 0))[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return str(host)
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))


@dataclass(eq=False)
class Upload:
    """A request whose body is being received."""

    client: str
    clock: asyncio.Timeout
    """Its time limit, which is moved to now if the upload is dropped."""
    size: int = 0
    complete: bool = False
    dropped: bool = False
    number: int = field(default_factory=itertools.count().__next__)
    """Increases with every upload."""


class Uploads:
    """Bodies in memory: at most ``count`` unfinished ones, and at most ``size`` bytes of all together.

    Beyond that, the oldest unfinished upload of the client with the most of them is dropped. So a client that
    sends nothing harms itself first, and a single client may use everything there is.
    """

    def __init__(self, *, count: int, size: int) -> None:
        self.count, self.size = count, size
        self._all: set[Upload] = set()

    def open(self, client: str, clock: asyncio.Timeout) -> Upload:
        """Register a request before its body is read."""
        upload = Upload(client, clock)
        self._all.add(upload)
        if sum(not other.complete for other in self._all) > self.count:
            self._drop_oldest()
        return upload

    def receive(self, upload: Upload, size: int) -> None:
        """Count bytes that have arrived; 503 if there is no room for them."""
        upload.size += size
        while sum(other.size for other in self._all if not other.dropped) > self.size:
            if not self._drop_oldest(besides=upload):
                raise ApiError(503, "the server is receiving too many uploads; try again in a moment")

    def close(self, upload: Upload) -> None:
        """Forget a request that has ended."""
        self._all.discard(upload)

    def _drop_oldest(self, besides: Upload | None = None) -> bool:
        unfinished = [u for u in self._all if not u.complete and not u.dropped and u is not besides]
        if not unfinished:
            return False
        clients = Counter(upload.client for upload in unfinished)
        oldest = min(unfinished, key=lambda upload: (-clients[upload.client], upload.number))
        oldest.dropped = True
        oldest.clock.reschedule(asyncio.get_running_loop().time())
        return True


class Slots:
    """At most ``total`` requests at the same time, and an eighth more for clients that have none.

    A quarter of them, or four, work at a time for one client; its others wait for their turn. So the event
    loop is never busy with one client alone.
    """

    def __init__(self, total: int) -> None:
        self.total, self.reserve, self.share = total, max(1, total // 8), max(4, total // 4)
        self._taken: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Semaphore] = {}

    @property
    def active(self) -> int:
        """Requests that have a slot."""
        return self._taken.total()

    async def take(self, client: str) -> None:
        """Wait for the client's turn, or raise 503 at once."""
        room = self.total + (0 if self._taken[client] else self.reserve)
        if self.active >= room:
            raise ApiError(503, f"{self.active} requests are being answered already; try again in a moment")
        self._taken[client] += 1
        try:
            await self._turns.setdefault(client, asyncio.Semaphore(self.share)).acquire()
        except BaseException:
            self._give_back(client)
            raise

    def release(self, client: str) -> None:
        """End a request."""
        self._turns[client].release()
        self._give_back(client)

    def _give_back(self, client: str) -> None:
        self._taken[client] -= 1
        if not self._taken[client]:
            del self._taken[client], self._turns[client]


class FairQueue:
    """Jobs of several clients, taken in turns: nobody waits behind all the jobs of somebody else.

    With a ``share``, a client has at most that many jobs taken and not yet ``done``.
    """

    def __init__(self, share: int | None = None) -> None:
        self._share, self._running = share, Counter[str]()
        self._jobs: OrderedDict[str, deque[Any]] = OrderedDict()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, client: str, job: Any) -> None:
        """Append a job to those of its client."""
        with self._changed:
            self._jobs.setdefault(client, deque()).append(job)
            self._changed.notify()

    def take(self) -> Any:
        """Wait for the next job; None once the queue is closed."""
        with self._changed:
            while (client := self._next()) is None and not self._closed:
                self._changed.wait()
            if client is None or self._closed:
                return None
            jobs = self._jobs.pop(client)
            job = jobs.popleft()
            if jobs:
                self._jobs[client] = jobs  # behind the other clients
            self._running[client] += 1
            return job

    def done(self, client: str) -> None:
        """A job that was taken has ended."""
        with self._changed:
            self._running[client] -= 1
            self._running += Counter()  # forget clients with nothing running
            self._changed.notify()

    def _next(self) -> str | None:
        """The first client in line that does not use its whole share."""
        for client in self._jobs:
            if self._share is None or self._running[client] < self._share:
                return client
        return None

    def close(self) -> list[Any]:
        """Wake all who wait, and return the jobs that nobody takes any more."""
        with self._changed:
            self._closed = True
            left = [job for jobs in self._jobs.values() for job in jobs]
            self._jobs.clear()
            self._changed.notify_all()
            return left
