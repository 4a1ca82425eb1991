"""``iaa serve``: a page to search a run's images with, and the same as an HTTP API."""

import gc
import math
import os
import sys
import warnings
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from iaa.allocator import keep_freed_memory
from iaa.cli.run_paths import check_model
from iaa.errors import need
from iaa.progress import tracking
from iaa.terminal import printable

if TYPE_CHECKING:
    from iaa.gallery.gallery import Gallery
    from iaa.inference import Model
    from iaa.serve.limits import Limits

MAX_LIMIT = 1_000_000
"""Largest value of any limit; more is a typing error, and would be no limit."""
TOKEN_VARIABLE = "IAA_TOKEN"


def command(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    gallery: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    open: bool = True,
    store: str | None = None,
    index: Literal["auto", "exact", "flat", "hnsw", "ivf"] = "auto",
    device: str = "auto",
    precision: Literal["fp32", "bf16", "fp16"] = "fp32",
    devices: int = 1,
    token: str | None = None,
    token_file: Path | None = None,
    no_token: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    allow_host: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    max_megabytes: float = 20.0,
    max_megapixels: float = 25.0,
    max_seconds: float = 30.0,
    max_requests: int = 64,
    batch_size: int = 16,
) -> int:
    """Search in the browser: drop an image, see the most similar ones, click one to continue from it.

    The page /api documents the HTTP API: curl -F image=@photo.jpg http://127.0.0.1:8000/api/search

    Args:
        run: The run directory, or an embeddings file that says which network made it.
        gallery: folder:DIR, table:FILE or an embeddings file to search; without it, the images of the run.
        host: Address to listen on. With any other than 127.0.0.1, other machines can reach the server, and it
            needs a token. For HTTPS, put a reverse proxy in front of it.
        port: Port to listen on; 0 picks a free one.
        open: Open the page in a browser.
        store: milvus:gallery.db (an embedded Milvus database) or milvus:http://HOST:19530 (a server) keeps
            the gallery there instead of in RUN/galleries; #NAME behind it names the collection.
        index: Exact search, or an index of faiss or Milvus for millions of images (hnsw and ivf are
            approximate). Auto is exact for a file and hnsw for a new collection of Milvus.
        device: auto, cpu, cuda, cuda:1, mps.
        precision: What the network computes in; a gallery keeps the embeddings it has.
        devices: Processes that embed the gallery's new images: a GPU each, or shares of the CPU's cores.
        token: Access token that clients must send, of 12 characters or more. Other users of this machine can
            see it in the list of processes: prefer --token-file or the environment variable IAA_TOKEN.
        token_file: File that holds the access token.
        no_token: Let other machines in without a token: whoever reaches the server sees the gallery.
        allow_host: Host name that the server answers to, besides its address; repeat it for several.
        max_megabytes: Largest upload.
        max_megapixels: Largest uploaded image; a JPEG may have up to four times as many pixels.
        max_seconds: Longest time that a request may take.
        max_requests: Requests answered at the same time; others get 503 and may try again.
        batch_size: Images that go through the network together.
    """
    for package in ("fastapi", "python_multipart", "uvicorn"):
        need(package, extra="serve")
    from iaa.inference import load
    from iaa.retrieval.index import Index
    from iaa.serve.access import LOOPBACK
    from iaa.serve.app import create_app
    from iaa.serve.decode_pool import preload
    from iaa.serve.server import bind, has_screen, is_loopback, make_server, url
    from iaa.serve.service import Service

    limits = _limits(max_megabytes, max_megapixels, max_seconds, max_requests, batch_size)
    secret, local = _token(token, token_file, no_token), is_loopback(host)
    if not local and secret is None and not no_token:
        raise ValueError(
            f"--host {host} lets other machines reach the gallery: set a token with --token-file or "
            f"{TOKEN_VARIABLE}, or allow everyone with --no-token"
        )
    keep_freed_memory()
    warnings.filterwarnings("ignore", ".*decompression bomb", Warning)  # such uploads are refused anyway
    with bind(host, port) as bound:  # a port in use is reported before anything is loaded
        check_model(run)
        preload()
        model = load(run, device=device, precision=precision)
        kind = None if index == "auto" or store is None else "flat" if index == "exact" else index
        spec = str(run) if gallery is None and model.config is None else gallery
        opened = _open_gallery(model, spec, store=store, index=kind, devices=devices)
        own = None if gallery is None or model.config is None else _own_gallery(model, devices)
        exact = store is not None or index in ("auto", "exact")
        faiss_index = None if exact else Index(opened.data.z, kind=index)

        def on_start() -> None:
            classes = len(opened.classes)
            gc.collect()
            gc.freeze()  # or else every full collection walks all that was loaded: 0.2 s without a response
            print(f"{len(opened):,} images of {classes:,} classes at {url(bound)} (Ctrl-C stops)", flush=True)
            if open and has_screen():
                webbrowser.open(url(bound))

        if not local and secret is None:
            print(
                f"warning: {host} can be reached from other machines, without a token: "
                "whoever reaches it sees the images of the gallery",
                file=sys.stderr,
            )
        hosts = (*LOOPBACK, host, *allow_host) if local or allow_host else None
        service = None
        try:  # from here on threads run, which Ctrl-C must end as well
            service = Service(model, opened, own=own, limits=limits, index=faiss_index)
            app = create_app(service, run=model.path.resolve().name, hosts=hosts, token=secret)
            make_server(app, on_start=on_start).run([bound])
        except KeyboardInterrupt:  # uvicorn raises it again once everything is closed
            pass
        finally:
            if service is not None:
                service.close()
    print("stopped", flush=True)
    if service is None or not service.analysis.stop(timeout=2):
        os._exit(0)  # with a thread inside of torch, a normal exit would abort
    return 0


def _limits(megabytes: float, megapixels: float, seconds: float, requests: int, batch: int) -> "Limits":
    from iaa.data.image_io import MAX_PIXELS
    from iaa.serve.limits import Limits

    for option, value, most in (
        ("--max-megabytes", megabytes, MAX_LIMIT),
        ("--max-megapixels", megapixels, MAX_PIXELS // 10**6),  # larger images cannot be read at all
        ("--max-seconds", seconds, MAX_LIMIT),
        ("--max-requests", requests, MAX_LIMIT),
        ("--batch-size", batch, MAX_LIMIT),
    ):
        if not 0 < value <= most:  # NaN as well
            raise ValueError(f"{option} must be more than 0 and at most {most:,}, got {value:g}")
    return Limits(
        upload_bytes=math.ceil(megabytes * 2**20),
        pixels=math.ceil(megapixels * 1e6),
        seconds=seconds,
        decode_seconds=min(Limits.decode_seconds, seconds),
        in_flight=requests,
        batch=batch,
    )


def _token(token: str | None, file: Path | None, no_token: bool) -> str | None:
    """The access token from an option, a file or the environment."""
    from iaa.serve.access import check_token

    if (token is not None) + (file is not None) + no_token > 1:
        raise ValueError("give only one of --token, --token-file and --no-token")
    if no_token:
        return None
    if file is not None:
        token = file.expanduser().read_text(encoding="utf-8", errors="replace").strip()
    elif token is None:
        token = os.environ.get(TOKEN_VARIABLE)
    return None if token is None else check_token(token)


def _own_gallery(model: "Model", devices: int) -> "Gallery | None":
    """The run's own images, from which the threshold for unknown classes is learned."""
    try:
        return _open_gallery(model, None, devices=devices)
    except (OSError, ValueError, ImportError) as error:
        print(
            f"note: the run's own images are not available to learn from: {printable(str(error))}",
            file=sys.stderr,
        )
        return None


def _open_gallery(
    model: "Model", spec: str | None, *, store: str | None = None, index: str | None = None, devices: int
) -> "Gallery":
    """Open a gallery, with a progress bar if images have to be embedded first."""
    from iaa.gallery.gallery import Gallery

    with tracking("embedding the gallery") as on_progress:
        opened = Gallery.open(model, spec, store=store, index=index, devices=devices, on_progress=on_progress)
    for note in opened.notes:
        print(f"note: {printable(note)}", file=sys.stderr)
    if opened.left_out:
        print(f"note: {len(opened.left_out)} images cannot be read and are left out", file=sys.stderr)
    return opened
