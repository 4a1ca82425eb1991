"""`iaa serve` under load from a second process: requests a second, waiting times, and that nothing is lost.

python benchmarks/serve.py --run RUN --out benchmarks/serve.json

Clients send images of the gallery and look at every answer: the image sent must be found again.
More clients than the server takes at one time must get 503 and a Retry-After, at once, and no one nothing.
Only this machine is talked to, for a bounded number of requests and seconds.
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
from typing import Any

import httpx
import numpy as np
import tyro
from surroundings import surroundings

from iaa.retrieval.embeddings import Embeddings


@dataclass
class Settings:
    run: Path
    """A finished run on images that are here."""
    out: Path | None = None
    """File for the result."""
    clients: tuple[int, ...] = (1, 4, 16, 64)
    """Numbers of clients that ask at the same time, each its next question once the last is answered."""
    requests: int = 600
    """Requests of every number of clients."""
    seconds: float = 30.0
    """Most that each may take."""
    crowd: int = 200
    """Clients that come all at once, more than the server takes."""
    in_flight: int = 64
    """Requests that the server answers at one time."""
    settle: float = 10.0
    """Seconds in which the server learns what it learns in the background."""


@dataclass
class Tally:
    """What became of requests."""

    sent: int = 0
    wrong: int = 0
    """Answers that do not hold the image sent, with a similarity of 1."""
    without_retry_after: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    milliseconds: dict[int, list[float]] = field(default_factory=dict)

    def report(self, seconds: float) -> dict[str, Any]:
        answered, waits = sum(self.statuses.values()), self.milliseconds.get(200, [])
        report: dict[str, Any] = {"sent": self.sent, "answered": self.statuses[200]}
        report |= {"refused_503": self.statuses[503], "lost": self.sent - answered}
        report |= {"other": answered - self.statuses[200] - self.statuses[503], "wrong": self.wrong}
        report["refused_without_retry_after"] = self.without_retry_after
        if waits:
            report["requests_per_second"] = round(len(waits) / seconds, 1)
            report |= {f"p{p}_ms": round(float(np.percentile(waits, p)), 1) for p in (50, 99)}
        if refused := self.milliseconds.get(503):
            report["refused_p99_ms"] = round(float(np.percentile(refused, 99)), 1)
        return report


def main(settings: Settings) -> None:
    with served(settings, batch=16) as address:
        report = asyncio.run(measure(settings, address))
    with served(settings, batch=1) as address:
        alone = asyncio.run(steady(settings, address, settings.clients[-2]))
    together = report["clients"][str(settings.clients[-2])]
    ratio = together["requests_per_second"] / alone["requests_per_second"]
    report = {"batches_over_one_by_one": round(ratio, 2), "one_by_one": alone, **report}
    print(json.dumps(report, indent=2))
    if settings.out:
        settings.out.write_text(json.dumps(report, indent=2) + "\n")


@contextmanager
def served(settings: Settings, *, batch: int) -> Iterator[str]:
    """The address of a server in a process of its own."""
    words = ["serve", str(settings.run), "--port", "0", "--no-open", "--batch-size", str(batch)]
    command = [sys.executable, "-m", "iaa", *words, "--max-requests", str(settings.in_flight)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+/", server.stdout.readline())
            if not found:
                raise RuntimeError("the server did not start")
            time.sleep(settings.settle)
            yield found[0]
        finally:
            server.terminate()
            server.wait(20)


async def measure(settings: Settings, address: str) -> dict[str, Any]:
    place, questions = prepared(settings, address)
    await clients(place, questions, 8, 100, settings.seconds)  # everything is loaded and warm
    found = {str(number): await steady(settings, address, number) for number in settings.clients}
    began = time.perf_counter()
    tally = await clients(place, questions, settings.crowd, settings.crowd, settings.seconds)
    crowd = tally.report(time.perf_counter() - began)
    about = health(address)
    return {
        "clients": found,
        "crowd": {"clients": settings.crowd, "taken_at_one_time": settings.in_flight, **crowd},
        "gallery": about["gallery"],
        "model": about["model"],
        "load_average": round(os.getloadavg()[0], 1),
        **surroundings("torch", "fastapi", "uvicorn", "pillow"),
    }


async def steady(settings: Settings, address: str, number: int) -> dict[str, Any]:
    """What so many clients get, each asking again once it is answered."""
    place, questions = prepared(settings, address)
    before, began = health(address), time.perf_counter()
    tally = await clients(place, questions, number, settings.requests, settings.seconds)
    report, after = tally.report(time.perf_counter() - began), health(address)
    batches = after["batches"] - before["batches"]
    mean = (after["embedded"] - before["embedded"]) / max(1, batches)
    return report | {"images_per_batch": round(mean, 2)}


def prepared(settings: Settings, address: str) -> tuple[tuple[str, int], list["Question"]]:
    """Where to ask, and what: images spread over the run's own."""
    data = Embeddings.load(settings.run / "embeddings.safetensors")
    paths = [Path(data.meta.get("root", "")) / name for name in data.ids]
    paths = [path for path in paths if path.is_file()][:: max(1, len(paths) // 200)]
    if not paths:
        raise SystemExit(f"the images of {settings.run} are not there, such as {data.ids[0]}")
    host, port = address.removeprefix("http://").rstrip("/").split(":")
    return (host, int(port)), [Question(path.name, request(address, path.read_bytes())) for path in paths]


def health(address: str) -> dict[str, Any]:
    return dict(httpx.get(f"{address}api/health", timeout=60).json())


@dataclass(frozen=True)
class Question:
    """The name of an image, and the whole request that sends it: clients must cost next to nothing."""

    name: str
    bytes: bytes


def request(address: str, content: bytes) -> bytes:
    made = httpx.Request("POST", f"{address}api/search", files={"image": content}, data={"top": "5"})
    head = "".join(f"{name}: {value}\r\n" for name, value in made.headers.items())
    return f"POST {made.url.path} HTTP/1.1\r\n{head}\r\n".encode() + made.read()


async def clients(
    place: tuple[str, int], questions: list[Question], number: int, requests: int, seconds: float
) -> Tally:
    """So many clients, a line each, until all requests are answered or the time is over."""
    lines = [await asyncio.open_connection(*place) for _ in range(number)]
    tally, until = Tally(), time.perf_counter() + seconds

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while tally.sent < requests and time.perf_counter() < until:
            question, tally.sent = questions[tally.sent % len(questions)], tally.sent + 1
            try:
                async with asyncio.timeout(60):
                    stays = await ask(reader, writer, question, tally)
            except (OSError, EOFError, TimeoutError):
                stays = False  # lost: it is in no count of answers
            if not stays:
                writer.close()
                reader, writer = await asyncio.open_connection(*place)
        writer.close()

    await asyncio.gather(*(client(*line) for line in lines))
    return tally


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, question: Question, tally: Tally
) -> bool:
    """One question and its answer; whether the line can be used again."""
    began = time.perf_counter()
    writer.write(question.bytes)
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    found = re.search(r"content-length: (\d+)", head)
    body = await reader.readexactly(int(found[1]) if found else 0)
    status = int(head.split(" ", 2)[1])
    tally.statuses[status] += 1
    tally.milliseconds.setdefault(status, []).append(1000 * (time.perf_counter() - began))
    if status == 200:
        alike = [one["name"] for one in json.loads(body)["results"] if one["similarity"] > 0.999]
        tally.wrong += not any(name.endswith(question.name) for name in alike)
    elif status == 503:
        tally.without_retry_after += "retry-after: " not in head
    return "connection: close" not in head


if __name__ == "__main__":
    main(tyro.cli(Settings))
