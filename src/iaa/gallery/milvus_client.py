"""One collection of a Milvus database: connection, schema, rows and search, with errors in one line."""

import functools
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from iaa.errors import need

CONNECT_SECONDS, CALL_SECONDS, BUILD_SECONDS = 5, 120, 3600
BATCH_BYTES = 2**24
"""Of the rows sent in one call; a server refuses messages of more than 64 MB."""
PAGE = 16_384
"""Rows read in one call, a limit of Milvus."""
QUERIES = 256
"""Queries searched in one call."""
INDEXES: dict[str, tuple[str, dict[str, int], dict[str, int]]] = {
    "flat": ("FLAT", {}, {}),
    "hnsw": ("HNSW", {"M": 32, "efConstruction": 200}, {"ef": 128}),
    "ivf": ("IVF_FLAT", {"nlist": 1024}, {"nprobe": 64}),
}
"""Kind to Milvus's name and the parameters of building and of searching."""
TEXT = {"key": 64, "model": 64, "name": 65_535, "class_name": 65_535, "class_key": 64, "split": 16}
"""Text fields and their most bytes."""
NUMBERS = ("modified", "size")
COLUMNS = (*(field for field in TEXT if field != "key"), *NUMBERS)


@dataclass(frozen=True, eq=False)
class MilvusCollection:
    """A collection by its name; it need not exist yet. The token comes from ``MILVUS_TOKEN``."""

    uri: str
    """A file whose name ends in ``.db``, or the address of a server."""
    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w{0,199}", self.name, re.ASCII):
            raise ValueError(
                f"a collection of Milvus is named with letters, digits and underscores, got {self.name!r}"
            )

    def __str__(self) -> str:
        return f"milvus:{re.sub('//[^/@]*@', '//', self.uri)}#{self.name}"

    @property
    def is_embedded(self) -> bool:
        """Whether the database is a local file."""
        return "://" not in self.uri

    @functools.cached_property
    def client(self) -> Any:
        """The connection, made on first use."""
        milvus = _pymilvus()
        for package in ("pymilvus", "milvus_lite"):  # errors are raised here, in one line
            logging.getLogger(package).setLevel(logging.CRITICAL)
        uri = self.uri
        if self.is_embedded:
            need("milvus_lite", extra="milvus")
            logging.getLogger("grpc._server").setLevel(logging.CRITICAL)  # of the embedded database
            path = Path(uri).expanduser()
            if path.suffix != ".db":
                raise ValueError(f"an embedded Milvus database is a file ending in .db, got {path}")
            path.parent.mkdir(parents=True, exist_ok=True)
            uri = os.path.abspath(path)
        with self.errors(connecting=True):
            return milvus.MilvusClient(uri, token=os.environ.get("MILVUS_TOKEN", ""), timeout=CONNECT_SECONDS)

    def exists(self) -> bool:
        """Whether there is such a collection; one that is not a gallery raises."""
        with self.errors():
            if not self.client.has_collection(self.name, timeout=CALL_SECONDS):
                return False
            missing = {*TEXT, *NUMBERS, "vector"} - {field["name"] for field in self._description["fields"]}
            if missing:
                raise ValueError(
                    f"{self} is not a gallery: it lacks the fields {', '.join(sorted(missing))}; "
                    "milvus:URI#NAME chooses another collection"
                )
            self.client.load_collection(self.name, timeout=BUILD_SECONDS)
        return True

    @functools.cached_property
    def _description(self) -> dict[str, Any]:
        description: dict[str, Any] = self.client.describe_collection(self.name, timeout=CALL_SECONDS)
        return description

    @functools.cached_property
    def dim(self) -> int:
        """Numbers of a vector."""
        with self.errors():
            fields = {field["name"]: field for field in self._description["fields"]}
        return int(fields["vector"]["params"]["dim"])

    @functools.cached_property
    def index_type(self) -> str:
        """Milvus's name of the index."""
        with self.errors():
            return str(self.client.describe_index(self.name, "vector", timeout=CALL_SECONDS)["index_type"])

    def create(self, dim: int, *, index: str = "hnsw") -> None:
        """An empty collection for vectors of ``dim`` numbers."""
        milvus = _pymilvus()
        kind, parameters, _ = INDEXES[index]
        with self.errors():
            schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
            for field, size in TEXT.items():
                schema.add_field(field, milvus.DataType.VARCHAR, is_primary=field == "key", max_length=size)
            for field in NUMBERS:
                schema.add_field(field, milvus.DataType.INT64)
            schema.add_field("vector", milvus.DataType.FLOAT_VECTOR, dim=dim)
            indexes = self.client.prepare_index_params()
            indexes.add_index("vector", index_type=kind, metric_type="COSINE", params=parameters)
            self.client.create_collection(
                self.name,
                schema=schema,
                index_params=indexes,
                consistency_level="Strong",
                timeout=BUILD_SECONDS,
            )
            self.client.load_collection(self.name, timeout=BUILD_SECONDS)

    def upsert(self, rows: Iterable[dict[str, Any]]) -> None:
        """Write rows, replacing those with the same key."""
        size = max(1, min(PAGE, BATCH_BYTES // (4 * self.dim + 1024)))
        batch: list[dict[str, Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == size:
                self._upsert(batch)
                batch = []
        if batch:
            self._upsert(batch)

    def _upsert(self, batch: list[dict[str, Any]]) -> None:
        with self.errors():
            self.client.upsert(self.name, batch, timeout=BUILD_SECONDS)  # may build an index

    def flush(self) -> None:
        """Move written rows from memory into indexed segments: durable, and much faster to search."""
        with self.errors():
            self.client.flush(self.name, timeout=BUILD_SECONDS)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete rows by key."""
        for start in range(0, len(keys), PAGE // 4):
            with self.errors():
                self.client.delete(self.name, ids=list(keys[start : start + PAGE // 4]), timeout=CALL_SECONDS)

    def delete_where(self, condition: str) -> None:
        """Delete all rows that fulfil a condition."""
        with self.errors():
            self.client.delete(self.name, filter=condition, timeout=BUILD_SECONDS)

    def rows(self, condition: str, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Some fields of all rows that fulfil a condition."""
        with self.errors():
            pages = self.client.query_iterator(
                self.name, batch_size=PAGE, filter=condition, output_fields=list(fields), timeout=CALL_SECONDS
            )
        try:
            while True:
                with self.errors():
                    page = pages.next()
                if not page:
                    return
                yield from page
        finally:
            pages.close()

    def get(self, keys: Sequence[str], fields: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Some fields of rows by their keys; missing rows are left out."""
        with self.errors():
            rows = self.client.get(
                self.name, ids=list(keys), output_fields=["key", *fields], timeout=CALL_SECONDS
            )
        return {row["key"]: row for row in rows}

    def vectors(self, keys: Sequence[str]) -> Tensor:
        """The vectors of rows by their keys."""
        size = max(1, min(PAGE // 4, BATCH_BYTES // (4 * self.dim)))
        parts = [torch.empty(0, self.dim)]
        for start in range(0, len(keys), size):
            chunk = keys[start : start + size]
            rows = self.get(chunk, ["vector"])
            missing = next((key for key in chunk if key not in rows), None)
            if missing is not None:
                raise ValueError(f"{self} was changed by another process meanwhile: open the gallery again")
            parts.append(torch.tensor([rows[key]["vector"] for key in chunk], dtype=torch.float32))
        return torch.cat(parts)

    def search(self, query: Tensor, top: int, condition: str) -> Iterator[list[tuple[str, float]]]:
        """Per query the keys and cosines of the nearest rows that fulfil a condition."""
        parameters = next((search for kind, _, search in INDEXES.values() if kind == self.index_type), {})
        if "ef" in parameters:
            parameters = {"ef": max(parameters["ef"], 2 * top)}
        for block in query.float().split(QUERIES):
            with self.errors():
                results = self.client.search(
                    self.name,
                    data=block.tolist(),
                    limit=top,
                    filter=condition,
                    output_fields=["key"],
                    search_params={"metric_type": "COSINE", "params": parameters},
                    timeout=CALL_SECONDS,
                )
            for hits in results:
                yield [(str(hit["entity"]["key"]), float(hit["distance"])) for hit in hits]

    @contextmanager
    def errors(self, *, connecting: bool = False) -> Iterator[None]:
        """Exceptions of the client as ``OSError`` with one line."""
        milvus = _pymilvus()
        grpc = need("grpc", extra="milvus")
        try:
            yield
        except (milvus.MilvusException, grpc.RpcError) as error:
            reason = " ".join(str(getattr(error, "message", error)).split())
            low = reason.lower()
            if connecting and self.is_embedded:
                raise OSError(
                    f"cannot open {self}: another process has it open, or it cannot be read or written"
                ) from error
            if any(word in low for word in ("permission", "privilege", "auth", "denied")):
                raise PermissionError(
                    f"{self}: no permission ({reason}): MILVUS_TOKEN must hold USER:PASSWORD or a token"
                ) from error
            if connecting or getattr(error, "code", None) == 2 or isinstance(error, grpc.RpcError):
                raise OSError(f"cannot reach {self}: {reason}") from error
            raise OSError(f"{self}: {reason}") from error


def _pymilvus() -> Any:
    """The client; gRPC's own log is silenced: it is loud about worker processes, which never use it."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    return need("pymilvus", extra="milvus")
