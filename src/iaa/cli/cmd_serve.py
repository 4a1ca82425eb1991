"""``iaa serve``: a page to search a run's images with, and the same as an HTTP API."""

import math
import os
import sys
import warnings
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from iaa.errors import need
from iaa.memory import keep_freed_memory

if TYPE_CHECKING:
    from iaa.gallery.gallery import Gallery
    from iaa.inference import Model

MOST = 1_000_000
"""Of any limit: beyond, it was a slip of the keyboard, and would be none."""


def command(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    gallery: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    open: bool = True,
    index: Literal["exact", "flat", "hnsw", "ivf"] = "exact",
    device: str = "auto",
    max_megabytes: float = 20.0,
    max_megapixels: float = 50.0,
    max_seconds: float = 30.0,
    max_requests: int = 64,
    batch_size: int = 16,
) -> int:
    """Search in the browser: drop an image, see the most similar ones, click one to go on from it.

    The same over HTTP, as the page /api tells: curl -F image=@photo.jpg http://127.0.0.1:8000/api/search

    Args:
        run: The run directory, or an embeddings file that says which network made it.
        gallery: folder:DIR, table:FILE or an embeddings file to search; without it, the images of the run.
        host: Address to listen at. Others than 127.0.0.1 let other machines see the gallery.
        port: Port to listen at; 0 takes a free one.
        open: Open the page in a browser.
        index: Exact search, or a faiss index for millions of images (hnsw and ivf are approximate).
        device: auto, cpu, cuda, cuda:1, mps.
        max_megabytes: Largest upload.
        max_megapixels: Largest uploaded image.
        max_seconds: Longest that a request may take.
        max_requests: Requests answered at one time; more get 503 and are told to come back.
        batch_size: Images that go through the network together.
    """
    for package in ("fastapi", "python_multipart", "uvicorn"):
        need(package, extra="serve")
    from iaa.data.image_io import MAX_PIXELS
    from iaa.inference import load
    from iaa.retrieval.index import Index
    from iaa.serve.app import create_app
    from iaa.serve.middleware import LOOPBACK
    from iaa.serve.request_limits import Limits
    from iaa.serve.server import address, bind, can_show_pages, is_loopback, make_server
    from iaa.serve.service import Service

    for option, value, most in (
        ("--max-megabytes", max_megabytes, MOST),
        ("--max-megapixels", max_megapixels, MAX_PIXELS // 10**6),  # more is read nowhere
        ("--max-seconds", max_seconds, MOST),
        ("--max-requests", max_requests, MOST),
        ("--batch-size", batch_size, MOST),
    ):
        if not 0 < value <= most:  # also what is no number
            raise ValueError(f"{option} must be more than 0 and at most {most:,}, got {value:g}")
    limits = Limits(
        upload_bytes=math.ceil(max_megabytes * 2**20),
        pixels=math.ceil(max_megapixels * 1e6),
        seconds=max_seconds,
        in_flight=max_requests,
        batch=batch_size,
    )
    keep_freed_memory()
    warnings.filterwarnings("ignore", ".*decompression bomb", Warning)  # such uploads are refused and told so
    with bind(host, port) as bound:  # a port that is taken is told before anything is loaded
        model = load(run, device=device)
        images = _gallery(model, str(run) if gallery is None and model.config is None else gallery)
        own = None if gallery is None or model.config is None else _own(model)
        found = None if index == "exact" else Index(images.data.z, kind=index)
        local, place = is_loopback(host), address(bound)

        def started() -> None:
            classes = len(images.classes)
            print(f"{len(images):,} images of {classes:,} classes at {place} (Ctrl-C stops)", flush=True)
            if open and can_show_pages():
                webbrowser.open(place)

        if not local:
            print(
                f"warning: {host} can be reached from other machines, without a password: "
                "whoever does sees the gallery's images",
                file=sys.stderr,
            )
        hosts = (*LOOPBACK, host) if local else None
        service = None
        try:  # from here on threads run, which Ctrl-C must end as well
            service = Service(model, images, own=own, limits=limits, index=found)
            app = create_app(service, run=model.path.resolve().name, hosts=hosts)
            make_server(app, on_start=started).run([bound])
        except KeyboardInterrupt:  # uvicorn hands it on once everything is closed
            pass
        finally:
            if service is not None:
                service.close()
    print("stopped", flush=True)
    if service is None or not service.insights.stop(timeout=2):
        os._exit(0)  # a thread that is still inside of torch would end a usual exit with an abort
    return 0


def _own(model: "Model") -> "Gallery | None":
    """The run's own images, which teach what is unknown in another gallery."""
    try:
        return _gallery(model, None)
    except (OSError, ValueError, ImportError) as error:
        print(f"note: the run's own images are not here to learn from: {error}", file=sys.stderr)
        return None


def _gallery(model: "Model", spec: str | None) -> "Gallery":
    """Open it, with a bar where images have to be embedded first."""
    from iaa.gallery.gallery import Gallery

    console = Console(stderr=True)
    columns = (
        TextColumn("embedding the gallery"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None, visible=False)
        opened = Gallery.open(
            model,
            spec,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total, visible=True),
        )
    for note in opened.notes:
        print(f"note: {note}", file=sys.stderr)
    if opened.left_out:
        print(f"note: {len(opened.left_out)} images cannot be read and are left out", file=sys.stderr)
    return opened
