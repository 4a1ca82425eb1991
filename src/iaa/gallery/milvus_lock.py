"""One writer at a time for a collection of Milvus, which has no locks of its own."""

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iaa.errors import need
from iaa.files import Lock
from iaa.gallery.milvus_client import CALL_SECONDS, MilvusCollection


@contextmanager
def locked(collection: MilvusCollection) -> Iterator[None]:
    """Hold the lock of a collection, or raise ``BlockingIOError`` at once.

    For an embedded database it is a file next to it. On a server it is a second collection, which only one
    client can create: that of a killed process of this machine is removed, that of another machine must be
    dropped by hand.
    """
    if collection.is_embedded:
        with Lock(f"{os.path.abspath(Path(collection.uri).expanduser())}.lock"):
            yield
        return
    name = f"{collection.name}_lock"
    _create(collection, name)
    try:
        yield
    finally:
        with collection.errors():
            collection.client.drop_collection(name, timeout=CALL_SECONDS)


def _create(collection: MilvusCollection, name: str) -> None:
    """The name of a field says who holds the lock; so schemas differ, and creating it twice fails."""
    milvus, client = need("pymilvus", extra="milvus"), collection.client
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("key", milvus.DataType.VARCHAR, is_primary=True, max_length=8)
    schema.add_field(f"by_{_host()}_{os.getpid()}_{time.time_ns()}", milvus.DataType.FLOAT_VECTOR, dim=2)
    for attempt in (1, 2):
        try:
            client.create_collection(name, schema=schema, timeout=CALL_SECONDS)
            return
        except milvus.MilvusException as error:
            with collection.errors():
                if not client.has_collection(name, timeout=CALL_SECONDS):
                    raise
                fields = client.describe_collection(name, timeout=CALL_SECONDS)["fields"]
            holder = str(fields[-1]["name"]).removeprefix("by_")
            if attempt == 2 or not _is_dead(holder):
                raise BlockingIOError(
                    f"{collection} is locked by {holder} (host, process, time): "
                    f"drop the collection {name} if that process is gone"
                ) from error
            with collection.errors():
                client.drop_collection(name, timeout=CALL_SECONDS)


def _host() -> str:
    return re.sub(r"\W", "_", socket.gethostname(), flags=re.ASCII)


def _is_dead(holder: str) -> bool:
    """Whether a lock's holder was a process of this machine that no longer runs."""
    host, process, _ = holder.rsplit("_", 2) if holder.count("_") >= 2 else ("", "", "")
    if host != _host() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # it runs as another user
        return False
    return False
