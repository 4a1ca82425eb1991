"""``iaa gallery import | export``: vectors between a gallery's store, embeddings files and Parquet."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from iaa.cli.run_paths import check_model
from iaa.progress import tracking
from iaa.terminal import printable

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
File = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]


def import_(
    run: Run,
    file: File,
    gallery: str | None = None,
    store: str | None = None,
    index: Literal["auto", "flat", "hnsw", "ivf"] = "auto",
    device: str = "auto",
) -> int:
    """Bring the vectors of an embeddings file into a gallery.

    Rows whose id is there already are replaced. .safetensors and .parquet are read in chunks: with a store in
    Milvus, memory does not grow with the number of vectors. A gallery that does not exist yet then holds the
    imported rows alone. Imported rows stay until they are removed, whether or not their images exist.

    Args:
        run: The run directory whose network made the vectors.
        file: An embeddings file: .safetensors, .parquet, .npz or .npy.
        gallery: folder:DIR or table:FILE, the gallery to import into; without it, that of the run.
        store: milvus:gallery.db or milvus:http://HOST:19530, with #NAME for the collection; without it, the
            file in RUN/galleries.
        index: The index of a new collection in Milvus; auto is hnsw.
        device: auto, cpu, cuda, cuda:1, mps.
    """
    check_model(run)
    from iaa.gallery.transfer import import_vectors
    from iaa.inference import load

    model = load(run, device=device)
    kind = None if index == "auto" else index
    with tracking("rows imported") as on_rows:
        count = import_vectors(model, file, spec=gallery, store=store, index=kind, on_rows=on_rows)
    print(f"the gallery holds {count:,} rows")
    return 0


def export(
    run: Run, file: File, gallery: str | None = None, store: str | None = None, device: str = "auto"
) -> int:
    """Write a gallery to an embeddings file, in chunks; it can be searched, evaluated and imported again.

    The gallery is brought up to date first.

    Args:
        run: The run directory.
        file: The file to write, ending in .safetensors or .parquet.
        gallery: folder:DIR, table:FILE or an embeddings file; without it, the gallery of the run.
        store: milvus:gallery.db or milvus:http://HOST:19530, with #NAME for the collection; without it, the
            file in RUN/galleries.
        device: auto, cpu, cuda, cuda:1, mps.
    """
    check_model(run)
    from iaa.gallery.gallery import Gallery
    from iaa.gallery.transfer import export_vectors
    from iaa.inference import load

    model = load(run, device=device)
    opened = Gallery.open(model, gallery, store=store)
    with tracking("rows exported") as on_rows:
        export_vectors(opened, model, file, on_rows=on_rows)
    print(f"wrote {printable(str(file))}: {len(opened):,} rows of {opened.dim:,} numbers each")
    return 0


command = {"import": import_, "export": export}
