"""Galleries in and out: embeddings files into a store, and a gallery into an embeddings file, in chunks."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from iaa.gallery.embedding import check_origin
from iaa.gallery.gallery import Gallery
from iaa.gallery.listing import IMPORTED, merge
from iaa.gallery.sources import Sources
from iaa.gallery.store import Header
from iaa.gallery.update import open_store, stored_header
from iaa.gallery.vector_files import chunked, open_vectors, write_vectors
from iaa.inference import Model
from iaa.provenance import describe

OnRows = Callable[[int, int], None]
"""Called with the number of rows done and the number of all."""


def import_vectors(
    model: Model,
    file: Path,
    *,
    spec: str | None = None,
    store: str | None = None,
    index: str | None = None,
    on_rows: OnRows = lambda done, total: None,
) -> int:
    """Bring the rows of an embeddings file into a gallery; how many it holds then.

    Rows whose id is in the gallery already are replaced. A gallery that does not exist yet holds the
    imported rows alone. They stay until they are removed, whether or not their images exist.
    """
    vectors = open_vectors(file)
    check_origin(model, file, vectors.dim, vectors.meta)
    vectors.check()  # a bad row stops the import before it begins
    keeper = open_store(model, spec, store, index=index)

    def chunks() -> Iterator[tuple[list[str], Tensor]]:
        done = 0
        for ids, z in vectors.chunks():
            yield ids, z
            done += len(ids)
            on_rows(done, len(vectors.listing))

    with keeper.lock():
        kept = keeper.read()
        header = Header(model.identity, Sources.imported(), {}, {})
        listing = vectors.listing
        if kept is not None:
            header = stored_header(kept)
            if header.model != model.identity:
                raise ValueError(f"{keeper.name} was made by another network than {model.path}")
            listing = merge([listing, kept.rows.listing()])
        stamps = header.stamps | dict.fromkeys(vectors.listing.ids, IMPORTED)
        left_out = {id: why for id, why in header.left_out.items() if stamps.get(id) != IMPORTED}
        header = Header(header.model, header.sources.without_removals(vectors.listing), left_out, stamps)
        return len(keeper.write(header, listing, chunks(), kept=kept).rows)


def export_vectors(
    gallery: Gallery, model: Model, file: Path, *, on_rows: OnRows = lambda done, total: None
) -> None:
    """Write all rows of a gallery to a ``.safetensors`` or ``.parquet`` embeddings file."""

    def chunks() -> Iterator[Tensor]:
        for rows in chunked(gallery.ids):
            yield gallery.vectors(rows)
            on_rows(int(rows[-1]) + 1, len(gallery))

    write_vectors(file, gallery.rows, chunks(), dim=gallery.dim, meta=_meta(gallery, model))


def _meta(gallery: Gallery, model: Model) -> dict[str, Any]:
    """Which network made the vectors, so that they can be searched and imported again."""
    meta: dict[str, Any] = {"weights_sha256": model.weights, "dim": model.dim}
    if model.network is not None:
        meta = describe(model.network, model.network.name)
        if model.config is not None:
            meta["weights"] = os.path.abspath(model.path / "model.safetensors")
    return meta if gallery.root is None else meta | {"root": gallery.root}
