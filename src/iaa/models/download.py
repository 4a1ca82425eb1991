"""Published weights over the network: quick to give up, and one line that says which file to give instead."""

import socket
import textwrap
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from urllib.parse import urlsplit

_PATIENCE = 10.0  # seconds without an answer
_PROBE = 3.0


@contextmanager
def fetching(name: str, url: str) -> Iterator[None]:
    """Let a library download inside; its errors become one line that names the file."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_PATIENCE)
    try:
        yield
    except (OSError, RuntimeError, HTTPException) as error:
        cause = textwrap.shorten(f"{type(error).__name__}: {error}", 120, placeholder=" …")
        raise OSError(
            f"the published weights of {name} could not be fetched ({cause}): "
            f"get {url} elsewhere and give it as weights=FILE, or start from scratch with pretrained=False"
        ) from error
    finally:
        socket.setdefaulttimeout(before)


@contextmanager
def hub() -> Iterator[None]:
    """Use the cache of huggingface_hub alone where its host does not answer: it would retry for a minute."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    if not urllib.request.getproxies() and not _answers(constants.ENDPOINT):
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=_PROBE).close()
    except OSError:
        return False
    return True
