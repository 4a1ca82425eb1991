"""`iaa serve` under load from another process: requests per second, latencies, and that nothing is lost.

python benchmarks/serve.py --run RUN --out benchmarks/serve.json

Clients send images of the gallery and check every response: the image sent must be among the results.
Beyond the number of requests that the server takes, clients must get 503 and a Retry-After at once.
Only this machine is contacted, for a bounded number of requests and seconds.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import tyro
from measurement import environment

from iaa.retrieval.embeddings import Embeddings


@dataclass
class Settings:
    run: Path
    """A finished run whose images are available."""
    out: Path | None = None
    """File for the result."""
    clients: tuple[int, ...] = (1, 4, 16, 64)
    """Numbers of concurrent clients; each sends its next request after the last response."""
    requests: int = 600
    """Requests for each number of clients."""
    seconds: float = 30.0
    """Time limit for each number of clients."""
    crowd: int = 200
    """Clients that arrive at the same time, more than the server takes."""
    in_flight: int = 64
    """Requests that the server answers at the same time."""
    settle: float = 10.0
    """Seconds in which the server finishes its background analysis."""


class Server(NamedTuple):
    """A server in a process of its own."""

    url: str
    pid: int

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self.url.removeprefix("http://").rstrip("/").split(":")
        return host, int(port)

    def health(self) -> dict[str, Any]:
        """What /api/health says."""
        return dict(httpx.get(f"{self.url}api/health", timeout=60).json())


class Query(NamedTuple):
    """The name of an image, and the request that sends it, ready-made so that clients cost little."""

    name: str
    request: bytes


@dataclass
class Tally:
    """What became of the requests."""

    sent: int = 0
    wrong: int = 0
    """Responses that do not hold the image sent with a similarity of 1."""
    without_retry_after: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    milliseconds: dict[int, list[float]] = field(default_factory=dict)

    def report(self, seconds: float) -> dict[str, Any]:
        """Counts and latencies."""
        answered, latencies = sum(self.statuses.values()), self.milliseconds.get(200, [])
        report: dict[str, Any] = {"sent": self.sent, "answered": self.statuses[200]}
        report |= {"refused_503": self.statuses[503], "lost": self.sent - answered}
        report |= {"other": answered - self.statuses[200] - self.statuses[503], "wrong": self.wrong}
        report["refused_without_retry_after"] = self.without_retry_after
        if latencies:
            report["requests_per_second"] = round(len(latencies) / seconds, 1)
            report |= {f"p{p}_ms": round(float(np.percentile(latencies, p)), 1) for p in (50, 99)}
        if refused := self.milliseconds.get(503):
            report["refused_p99_ms"] = round(float(np.percentile(refused, 99)), 1)
        return report


def main(settings: Settings) -> None:
    options = ("--max-requests", str(settings.in_flight))
    with served(settings.run, *options, "--batch-size", "16", settle=settings.settle) as server:
        report = asyncio.run(measure(settings, server))
    with served(settings.run, *options, "--batch-size", "1", settle=settings.settle) as server:
        unbatched = asyncio.run(steady_load(settings, server, settings.clients[-2]))
    batched = report["clients"][str(settings.clients[-2])]
    ratio = batched["requests_per_second"] / unbatched["requests_per_second"]
    report = {"batches_over_one_by_one": round(ratio, 2), "one_by_one": unbatched, **report}
    print(json.dumps(report, indent=2))
    if settings.out:
        settings.out.write_text(json.dumps(report, indent=2) + "\n")


@contextmanager
def served(run: Path, *options: str, settle: float = 0.0) -> Iterator[Server]:
    """Run `iaa serve` until the end of the block."""
    command = [sys.executable, "-m", "iaa", "serve", str(run), "--port", "0", "--no-open", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = re.search(r"http://\S+/", process.stdout.readline())
            if not url:
                raise RuntimeError("the server did not start")
            time.sleep(settle)
            yield Server(url[0], process.pid)
        finally:
            process.terminate()
            process.wait(20)


async def measure(settings: Settings, server: Server) -> dict[str, Any]:
    queries = gallery_queries(settings.run, server)
    await run_clients(server, queries, 8, 100, settings.seconds)  # warm up
    loads = {str(number): await steady_load(settings, server, number) for number in settings.clients}
    began = time.perf_counter()
    tally = await run_clients(server, queries, settings.crowd, settings.crowd, settings.seconds)
    crowd = tally.report(time.perf_counter() - began)
    health = server.health()
    return {
        "clients": loads,
        "crowd": {"clients": settings.crowd, "taken_at_one_time": settings.in_flight, **crowd},
        "gallery": health["gallery"],
        "model": health["model"],
        "load_average": round(os.getloadavg()[0], 1),
        **environment("torch", "fastapi", "uvicorn", "pillow"),
    }


async def steady_load(settings: Settings, server: Server, number: int) -> dict[str, Any]:
    """What a number of clients gets if each sends its next request after the last response."""
    queries = gallery_queries(settings.run, server)
    before, began = server.health(), time.perf_counter()
    tally = await run_clients(server, queries, number, settings.requests, settings.seconds)
    report, after = tally.report(time.perf_counter() - began), server.health()
    batches = after["batches"] - before["batches"]
    mean = (after["embedded"] - before["embedded"]) / max(1, batches)
    return report | {"images_per_batch": round(mean, 2)}


def gallery_queries(run: Path, server: Server) -> list[Query]:
    """About 200 images of the run."""
    data = Embeddings.load(run / "embeddings.safetensors")
    paths = [Path(data.meta.get("root", "")) / name for name in data.ids]
    paths = [path for path in paths if path.is_file()][:: max(1, len(paths) // 200)]
    if not paths:
        raise SystemExit(f"the images of {run} are missing, such as {data.ids[0]}")
    return [Query(path.name, search_request(server.url, path.read_bytes())) for path in paths]


def search_request(url: str, content: bytes) -> bytes:
    """The bytes of a search by an uploaded image."""
    made = httpx.Request("POST", f"{url}api/search", files={"image": content}, data={"top": "5"})
    head = "".join(f"{name}: {value}\r\n" for name, value in made.headers.items())
    return f"POST {made.url.path} HTTP/1.1\r\n{head}\r\n".encode() + made.read()


async def run_clients(
    server: Server, queries: list[Query], number: int, requests: int, seconds: float
) -> Tally:
    """Clients with a connection each, until all requests are answered or the time is over."""
    connections = [await asyncio.open_connection(*server.address) for _ in range(number)]
    tally, deadline = Tally(), time.perf_counter() + seconds

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while tally.sent < requests and time.perf_counter() < deadline:
            query, tally.sent = queries[tally.sent % len(queries)], tally.sent + 1
            try:
                async with asyncio.timeout(60):
                    is_open = await ask(reader, writer, query, tally)
            except (OSError, EOFError, TimeoutError):
                is_open = False  # lost: it is not counted as answered
            if not is_open:
                writer.close()
                reader, writer = await asyncio.open_connection(*server.address)
        writer.close()

    await asyncio.gather(*(client(*connection) for connection in connections))
    return tally


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, query: Query, tally: Tally) -> bool:
    """Send one request and read its response; whether the connection stays open."""
    began = time.perf_counter()
    writer.write(query.request)
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = re.search(r"content-length: (\d+)", head)
    body = await reader.readexactly(int(length[1]) if length else 0)
    status = int(head.split(" ", 2)[1])
    tally.statuses[status] += 1
    tally.milliseconds.setdefault(status, []).append(1000 * (time.perf_counter() - began))
    if status == 200:
        identical = [hit["name"] for hit in json.loads(body)["results"] if hit["similarity"] > 0.999]
        tally.wrong += not any(name.endswith(query.name) for name in identical)
    elif status == 503:
        tally.without_retry_after += "retry-after: " not in head
    return "connection: close" not in head


if __name__ == "__main__":
    main(tyro.cli(Settings))
