"""Admission control: unfinished uploads and running requests, shared fairly between clients."""

import asyncio
import ipaddress
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from iaa.serve.api_errors import ApiError


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

    A quarter of them work at a time for one client; its others wait for their turn. So the event loop is
    never busy with one client alone.
    """

    def __init__(self, total: int) -> None:
        self.total, self.reserve, self.share = total, max(1, total // 8), max(1, total // 4)
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
