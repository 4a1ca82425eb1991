"""A small run behind a real server on a real socket, for the tests of serve."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

import iaa
import tiny_runs
from iaa.config import Augment
from iaa.serve.access import LOOPBACK
from iaa.serve.app import create_app
from iaa.serve.limits import Limits
from iaa.serve.server import bind, make_server, url
from iaa.serve.service import Service
from iaa.train import train

COLOURS = {"red": (200, 40, 40), "green": (40, 160, 60), "blue": (40, 60, 200), "grey": (120, 120, 120)}


def images(root: Path, *, each: int = 5, side: int = 24) -> Path:
    """Classes that any network can tell apart: each has its colour and some noise."""
    random = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        for shade in ("dark", "light"):
            for number in range(each):
                base = np.array(colour) * (0.5 if shade == "dark" else 1.0)
                pixels = (base + random.normal(0, 12, (side, side, 3))).clip(0, 255).astype(np.uint8)
                path = root / f"{shade} {name}" / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(path)
    return root


def trained(folder: Path) -> Path:
    """A finished run on such images."""
    data = images(folder / "images")
    config = tiny_runs.tiny(data, folder / "runs", epochs=2, augment=Augment(refresh_every=1, neighbors=3))
    return train(config, quiet=True).path


def service(run: Path, **limits: Any) -> Service:
    model = iaa.load(run, device="cpu")
    return Service(model, iaa.Gallery.open(model), limits=Limits(**limits))


@contextmanager
def served(
    given: Service, *, hosts: tuple[str, ...] | None = LOOPBACK, token: str | None = None, **options: Any
) -> Iterator[str]:
    """The URL of a server in a thread, which is stopped in the end."""
    with bind("127.0.0.1", 0) as bound:
        started = threading.Event()
        server = make_server(
            create_app(given, run="tiny", hosts=hosts, token=token), on_start=started.set, **options
        )
        thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
        thread.start()
        try:
            assert started.wait(30)
            yield url(bound).rstrip("/")
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


def eventually(holds: Any, seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def post(base: str, content: bytes, path: str = "/api/search", **fields: Any) -> httpx.Response:
    return httpx.post(base + path, files={"image": ("x.png", content)}, data=fields, timeout=30)
