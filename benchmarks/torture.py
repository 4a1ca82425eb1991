"""Load, floods and unfinished requests against `iaa serve`, and kills of training and embedding.

python benchmarks/torture.py                         # all sections, minutes; `make torture`
python benchmarks/torture.py --sections flood idle   # some; the results of the others are kept

Every section is a function of ``SECTIONS`` that takes the settings and returns its figures. The results go to
torture.json, and from there to torture.md. Only this machine is contacted; attackers come from 127.0.0.2.
"""

import asyncio
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from kills import kill_embedding, kill_training
from measurement import environment
from PIL import Image

from serve import Query, Server, Tally, ask, gallery_queries, run_clients, search_request, served

HERE = Path(__file__).parent
ATTACKER, OTHER = "127.0.0.2", "127.0.0.1"


@dataclass
class Settings:
    sections: tuple[str, ...] = ()
    """Names of sections to run; all by default."""
    run: Path | None = None
    """A finished run to serve; by default a small one is trained first."""
    out: Path = HERE / "torture.json"
    """File for the results; the text file next to it has the same name."""
    seed: int = 0
    clients: tuple[int, ...] = (1, 16, 64)
    """Numbers of concurrent clients under load."""
    requests: int = 400
    """Requests for each number of clients."""
    seconds: float = 15.0
    """Duration of every other attack."""
    senders: int = 63
    """Senders of costly images."""
    side: int = 7000
    """Width and height of the costly images, of one colour."""
    uploads: int = 64
    """Uploads that never finish."""
    sockets: int = 700
    """Connections that send nothing."""
    pause: float = 5.0
    """Seconds before an attack, and after it until memory is measured."""
    kills: int = 12
    """How often training is killed, and embedding."""


def load(settings: Settings) -> dict[str, Any]:
    """Clients that each send their next request after the last response."""

    async def measure(server: Server) -> dict[str, Any]:
        queries, figures = gallery_queries(_run(settings), server), {}
        await run_clients(server, queries, 8, 50, settings.seconds)  # warm up
        for number in settings.clients:
            began = time.perf_counter()
            tally = await run_clients(server, queries, number, settings.requests, 60)
            figures[f"{number} clients"] = tally.report(time.perf_counter() - began)
        return figures

    with served(_run(settings), settle=settings.pause / 2) as server:
        return asyncio.run(measure(server))


def flood(settings: Settings) -> dict[str, Any]:
    """Costly images of a few bytes, refused by the default limit or admitted with a higher one."""
    pixels = settings.side**2
    return {
        name: _under_attack(settings, _send_costly_images, *options)
        for name, options in {
            "default limit": (),
            "limit raised": ("--max-megapixels", str(min(89, pixels // 10**6 + 1))),
        }.items()
    }


def half_open(settings: Settings) -> dict[str, Any]:
    """Uploads that are announced and begun, but never finish."""
    return {"unfinished uploads": _under_attack(settings, _leave_uploads_unfinished)}


def idle(settings: Settings) -> dict[str, Any]:
    """Connections that send nothing."""
    return {"idle connections": _under_attack(settings, _open_idle_sockets)}


def kills(settings: Settings) -> dict[str, Any]:
    """Training and embedding killed with SIGKILL; the files of the end against those of a run left alone."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            "training": kill_training(Path(folder), kills=settings.kills, seed=settings.seed),
            "embedding": kill_embedding(Path(folder), kills=settings.kills, seed=settings.seed),
        }


SECTIONS: dict[str, Callable[[Settings], dict[str, Any]]] = {
    "load": load,
    "flood": flood,
    "half_open": half_open,
    "idle": idle,
    "kills": kills,
}


def main(settings: Settings) -> None:
    names = settings.sections or tuple(SECTIONS)
    unknown = set(names) - set(SECTIONS)
    if unknown:
        raise SystemExit(f"unknown sections {sorted(unknown)}; there are {', '.join(SECTIONS)}")
    results = json.loads(settings.out.read_text()) if settings.out.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        if settings.run is None and set(names) != {"kills"}:
            settings.run = _train_small_run(Path(folder), settings.seed)
        for name in names:
            began = time.perf_counter()
            print(f"{name} …", flush=True)
            figures = SECTIONS[name](settings)
            about = (SECTIONS[name].__doc__ or "").strip().splitlines()[0]
            results[name] = {
                "about": about,
                "seconds": round(time.perf_counter() - began),
                "figures": figures,
            }
            results[name] |= {"load_average": round(os.getloadavg()[0], 1)}
    results["surroundings"] = environment("torch", "fastapi", "uvicorn", "pillow")
    settings.out.write_text(json.dumps(results, indent=2) + "\n")
    settings.out.with_suffix(".md").write_text(as_markdown(results))


def as_markdown(results: dict[str, Any]) -> str:
    """One table per section; its columns are the figures that any of its rows has."""
    lines = ["# Under attack", "", "Written by `make torture`; do not edit.", ""]
    for name, section in results.items():
        if name == "surroundings":
            continue
        rows: dict[str, dict[str, Any]] = section["figures"]
        columns = list(dict.fromkeys(key for row in rows.values() for key in row))
        lines += [f"## {name.replace('_', ' ').capitalize()}", "", section["about"], ""]
        lines += ["| | " + " | ".join(key.replace("_", " ") for key in columns) + " |"]
        lines += ["|---" * (len(columns) + 1) + "|"]
        for label, row in rows.items():
            cells = " | ".join(_cell(row.get(key, "")) for key in columns)
            lines.append(f"| {label} | {cells} |")
        lines += ["", f"Load average of the machine at the end: {section['load_average']}.", ""]
    machine = results["surroundings"]
    lines.append(
        f"{machine['machine']['cpu']}, {machine['machine']['cores']} cores, commit {machine['commit']}, "
        f"{machine['date']}."
    )
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {count:,}" for key, count in value.items()) or "none"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


@dataclass
class _Attack:
    """Shared between an attack and the clients that ask meanwhile."""

    server: Server
    settings: Settings
    statuses: Counter[str] = field(default_factory=Counter)
    stopped: bool = False
    sockets: list[socket.socket] = field(default_factory=list)


def _under_attack(settings: Settings, attack: Callable[[_Attack], Any], *options: str) -> dict[str, Any]:
    """Latencies of small images and of /api/health from another client, before and during an attack."""

    async def measure(server: Server) -> dict[str, Any]:
        shared = _Attack(server, settings)
        queries = gallery_queries(_run(settings), server)
        await run_clients(server, queries, 4, 40, 60)  # warm up
        before = await _probe(server, queries, settings.pause / 2)
        memory = {"before": _megabytes(server.pid)}
        attackers = asyncio.ensure_future(attack(shared))
        await asyncio.sleep(1)
        during = await _probe(server, queries, settings.seconds, memory)
        shared.stopped = True
        await attackers
        for connection in shared.sockets:
            connection.close()
        await asyncio.sleep(settings.pause)
        memory["after"] = _megabytes(server.pid)
        return {
            "p50_ms_before": before["p50_ms"],
            **during,
            "attack_got": dict(sorted(shared.statuses.items())),
            **{f"memory_{name}_MB": size for name, size in memory.items()},
        }

    with served(_run(settings), *options, settle=settings.pause / 2) as server:
        return asyncio.run(measure(server))


async def _probe(
    server: Server, queries: list[Query], seconds: float, memory: dict[str, int] | None = None
) -> dict[str, Any]:
    """A small image and a look at /api/health, again and again, each on a connection of its own."""
    images, health = Tally(), Tally()
    request = f"GET /api/health HTTP/1.1\r\nHost: {server.address[0]}\r\n\r\n".encode()
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        for tally, query in ((images, queries[images.sent % len(queries)]), (health, Query("", request))):
            tally.sent += 1
            began = time.perf_counter()
            with suppress(OSError, EOFError, TimeoutError):
                async with asyncio.timeout(60):
                    reader, writer = await asyncio.open_connection(*server.address, local_addr=(OTHER, 0))
                    if query.name:
                        await ask(reader, writer, query, tally)
                    else:
                        writer.write(query.request)
                        status = int((await reader.readline()).split()[1])
                        tally.statuses[status] += 1
                        elapsed = 1000 * (time.perf_counter() - began)
                        tally.milliseconds.setdefault(status, []).append(elapsed)
                    writer.close()
        if memory is not None:
            memory["peak"] = max(memory.get("peak", 0), _megabytes(server.pid))
        await asyncio.sleep(0.05)
    waits = images.milliseconds.get(200, [0.0])
    return {
        "images_sent": images.sent,
        "images_answered": images.statuses[200],
        "p50_ms": round(float(np.percentile(waits, 50)), 1),
        "p99_ms": round(float(np.percentile(waits, 99)), 1),
        "slowest_ms": round(max(waits), 1),
        "health_sent": health.sent,
        "health_answered": health.statuses[200],
        "health_slowest_ms": round(max(health.milliseconds.get(200, [0.0])), 1),
    }


async def _send_costly_images(attack: _Attack) -> None:
    """Each sender sends its next image after the last response."""
    side = attack.settings.side
    content = io.BytesIO()
    Image.new("RGB", (side, side), (10, 90, 50)).save(content, "WEBP", lossless=True)
    request = search_request(attack.server.url, content.getvalue())

    async def sender() -> None:
        while not attack.stopped:
            try:
                async with asyncio.timeout(60):
                    connect = asyncio.open_connection(*attack.server.address, local_addr=(ATTACKER, 0))
                    reader, writer = await connect
                    writer.write(request)
                    status = (await reader.readline()).split()[1].decode()
                    writer.close()
            except (OSError, EOFError, IndexError, TimeoutError):
                status = "lost"
            attack.statuses[status] += 1
            await asyncio.sleep(0.2)

    await asyncio.gather(*(sender() for _ in range(attack.settings.senders)))


async def _leave_uploads_unfinished(attack: _Attack) -> None:
    """Begin uploads and keep their number up until the attack is over."""
    host, port = attack.server.address
    head = f"POST /api/search HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 50000\r\n"
    part = f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n".encode()

    async def sender() -> None:
        while not attack.stopped:
            status = "lost"
            with suppress(OSError, EOFError, IndexError):
                reader, writer = await asyncio.open_connection(host, port, local_addr=(ATTACKER, 0))
                writer.write(part)
                reply = asyncio.ensure_future(reader.readline())
                while not reply.done() and not attack.stopped:
                    await asyncio.wait((reply,), timeout=0.2)
                status = reply.result().split()[1].decode() if reply.done() else "held until the end"
                reply.cancel()
                writer.close()
            attack.statuses[status] += 1

    await asyncio.gather(*(sender() for _ in range(attack.settings.uploads)))


async def _open_idle_sockets(attack: _Attack) -> None:
    """Open connections and send nothing."""
    for _ in range(attack.settings.sockets):
        try:
            connection = socket.socket()
            attack.sockets.append(connection)
            connection.setblocking(False)
            connection.bind((ATTACKER, 0))
            await asyncio.get_running_loop().sock_connect(connection, attack.server.address)
            attack.statuses["opened"] += 1
        except OSError:
            attack.statuses["lost"] += 1
    while not attack.stopped:
        await asyncio.sleep(0.1)


def _megabytes(pid: int) -> int:
    """Memory of a process and all its descendants; pages that they share count once."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    total, waiting = 0, [pid]
    while waiting:
        current = waiting.pop()
        waiting += children.get(current, [])
        with suppress(OSError):
            lines = Path(f"/proc/{current}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total // 1024


def _run(settings: Settings) -> Path:
    assert settings.run is not None
    return settings.run


def _train_small_run(folder: Path, seed: int) -> Path:
    """A run on images of coloured noise, which needs no data and little time."""
    random = np.random.default_rng(seed)
    for label in range(40):
        colour = random.integers(30, 226, 3)
        for number in range(8):
            pixels = (colour + random.normal(0, 15, (96, 96, 3))).clip(0, 255).astype(np.uint8)
            path = folder / "images" / f"class {label:02}" / f"{label:02}-{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    command = [sys.executable, "-m", "iaa", "train", "--data", f"folder:{folder / 'images'}", "--epochs", "2"]
    command += ["--images.size", "64", "--run.out", str(folder / "runs"), "--no-report"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (metrics,) = (folder / "runs").glob("*/metrics.json")
    return metrics.parent


if __name__ == "__main__":
    main(tyro.cli(Settings))
