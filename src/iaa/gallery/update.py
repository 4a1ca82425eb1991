"""Opening a gallery and bringing it up to date: new and changed images are embedded, missing ones dropped."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from iaa.data.custom import UnusableTable
from iaa.embed_processes import device_list
from iaa.errors import unknown
from iaa.files import NO_FILE, Stamp
from iaa.gallery.embedding import Progress, embedded_ids, vectors_for
from iaa.gallery.file_store import MAKE_AGAIN, FileStore, MemorySnapshot
from iaa.gallery.gallery import Gallery
from iaa.gallery.listing import IMPORTED, Listing, changed_files, file_stamps, list_source
from iaa.gallery.sources import Available, Sources, gallery_name, source_of
from iaa.gallery.store import Header, Snapshot, Store
from iaa.inference import Model
from iaa.provenance import NOT_UTF8
from iaa.retrieval.formats import READERS

Paths = str | Path | Iterable[str | Path | Iterable[str | Path]]


def open_gallery(
    model: Model,
    spec: str | Path | None = None,
    *,
    store: str | None = None,
    index: str | None = None,
    add: Paths = (),
    remove: Paths = (),
    devices: int = 1,
    on_progress: Progress = lambda done, total: None,
) -> Gallery:
    """See ``Gallery.open``."""
    device_list(model.device, devices)
    spec = None if spec is None else str(spec)
    added, removed = as_paths(add), as_paths(remove)
    file = model.path if spec is None and model.path.is_file() else _embeddings_file(spec)
    if file is not None:
        if added or removed:
            raise ValueError(f"{file} is an embeddings file: only galleries kept with a run can be changed")
        if store is not None:
            raise ValueError(f"{file} is searched as it is: `iaa gallery import` brings it into a store")
        return Gallery(MemorySnapshot(vectors_for(model, file)), str(file), spec, model)
    keeper = open_store(model, spec, store, index=index)

    def opened(snapshot: Snapshot, *notes: str) -> Gallery:
        return Gallery(snapshot, keeper.name, spec, model, notes, store)

    kept = _read(keeper, model)
    if kept is not None and not _is_by(kept, model) and store is not None and "#" in store:
        raise ValueError(
            f"{keeper.name} was made by another network than {model.path}: "
            "milvus:URI#NAME chooses another collection"
        )
    if kept is not None and not added and not removed:
        try:
            available = stored_header(kept).sources.available(model, _imported(kept))
            if _is_current(kept, model, available):
                return opened(kept, *available.notes)
        except (OSError, ValueError, ImportError) as error:
            if not _is_by(kept, model) or isinstance(error, UnusableTable):
                raise
            return opened(kept, f"searching what is kept in {keeper.name}: {error}")
    try:
        with keeper.lock():
            kept = _read(keeper, model)  # another process may have changed it meanwhile
            sources = Sources.of(spec) if kept is None else stored_header(kept).sources
            sources = sources.changed(model, added, removed, None if kept is None else _imported(kept))
            names = tuple(map(source_of, added))
            return opened(*_update(keeper, model, sources, kept, on_progress, names, devices))
    except BlockingIOError as error:
        if kept is None or added or removed or not _is_by(kept, model):
            holder = f" ({error})" if error.errno is None else ""
            raise OSError(
                f"{keeper.name} is being changed by another process{holder}: try again when it is done"
            ) from error
        return opened(kept, "another process is updating the gallery: searching the old one")


def open_store(model: Model, spec: str | None, store: str | None, *, index: str | None = None) -> Store:
    """The store of a gallery: a file in the run directory, or ``milvus:URI`` or ``milvus:URI#COLLECTION``."""
    name = gallery_name(model, spec)
    file = model.folder / "galleries" / f"{name}.safetensors"
    if store is None:
        return FileStore(file)
    kind, _, rest = store.partition(":")
    uri, _, collection = rest.partition("#")
    if kind != "milvus" or not uri:
        raise ValueError(
            f"a store must be milvus:FILE.db, milvus:URI or milvus:URI#COLLECTION, got {store!r}"
        )
    from iaa.gallery.milvus_client import INDEXES, MilvusCollection
    from iaa.gallery.milvus_store import MilvusStore, collection_name

    if index is not None and index not in INDEXES:
        raise unknown("index", index, INDEXES)
    chosen = MilvusCollection(uri, collection or collection_name(model.folder, name, model.dim))
    return MilvusStore(chosen, file.with_name(f"{chosen.name}.parts"), model.dim, index)


def as_paths(given: Paths) -> tuple[str, ...]:
    """A single path, or several one by one or in lists, as text."""
    if isinstance(given, str | Path):
        return (str(given),)
    if not isinstance(given, list | tuple | set | Iterator):
        raise TypeError(f"a gallery refers to image files: give paths, got {type(given).__name__}")
    return tuple(path for entry in given for path in as_paths(entry))


def _update(
    store: Store,
    model: Model,
    sources: Sources,
    kept: Snapshot | None,
    on_progress: Progress,
    added: tuple[str, ...],
    devices: int,
) -> tuple[Snapshot, *tuple[str, ...]]:
    """Embed what is new or has changed and write the gallery; the new snapshot, and notes for the user."""
    available = sources.available(model, None if kept is None else _imported(kept))
    listing, notes = available.listing, available.notes
    now = file_stamps(listing.ids)  # before they are read: a change during the update is noticed next time
    before: dict[str, Stamp] = {}
    left_out: dict[str, str] = {}
    reused: set[str] = set()
    if kept is not None and not _is_by(kept, model):
        if len(_imported(kept)):
            raise ValueError(
                f"{store.name} holds imported vectors of another network, which cannot be made anew"
            )
        kept = None
        notes = ("the model has changed since: all images are embedded anew", *notes)
    if kept is not None:
        before = stored_header(kept).stamps
        changed = changed_files(before, now)
        reused = set(kept.rows.ids) - changed
        left_out = {id: why for id, why in stored_header(kept).left_out.items() if id not in changed}
    missing = [id for id in listing.ids if id not in reused and id not in left_out]
    stamps = {
        id: before.get(id, stamp) if stamp == NO_FILE or before.get(id) == IMPORTED else stamp
        for id, stamp in now.items()
    }
    embedding = embedded_ids(model, missing, now, store.scratch, on_progress, devices=devices)
    with embedding as (new_ids, z, unreadable):
        left_out = {id: why for id, why in (left_out | unreadable).items() if id in now} | available.not_utf8
        readable = reused.union(new_ids)
        for source in added:
            _refuse_unreadable(source, readable, left_out)
        listing = listing.take(row for row, id in enumerate(listing.ids) if id in readable)
        if not len(listing):
            reason = "".join(f": {id}: {why}" for id, why in list(left_out.items())[:1])
            raise ValueError(f"the gallery would be empty{reason}")
        header = Header(model.identity, sources, left_out, stamps)
        return store.write(header, listing, [(new_ids, z)], kept=kept), *notes


def _refuse_unreadable(source: str, readable: set[str], left_out: dict[str, str]) -> None:
    """Nothing is changed if no image of an added source can be read."""
    ids = list_source(source).ids
    if readable.isdisjoint(ids):
        reason = left_out.get(ids[0], NOT_UTF8)
        raise ValueError(f"nothing of {source.partition(':')[2]} can be read: {reason}")


def _read(store: Store, model: Model) -> Snapshot | None:
    kept = store.read()
    if kept is not None and _is_by(kept, model) and kept.dim != model.dim:
        raise ValueError(
            f"{store.name} holds vectors of {kept.dim} dimensions, the model makes {model.dim}: {MAKE_AGAIN}"
        )
    return kept


def _imported(kept: Snapshot) -> Listing:
    """The rows that were imported as vectors."""
    stamps = stored_header(kept).stamps
    return kept.rows.listing().take(row for row, id in enumerate(kept.rows.ids) if stamps.get(id) == IMPORTED)


def stored_header(kept: Snapshot) -> Header:
    """The header, which every gallery in a store has."""
    assert kept.rows.header is not None, "a store keeps a header"
    return kept.rows.header


def _is_by(kept: Snapshot, model: Model) -> bool:
    return stored_header(kept).model == model.identity


def _is_current(kept: Snapshot, model: Model, available: Available) -> bool:
    """Whether nothing has to be embedded, dropped or relabelled."""
    if not _is_by(kept, model):
        return False
    header, listing = stored_header(kept), available.listing
    wanted = listing.take(row for row, id in enumerate(listing.ids) if id not in header.left_out)
    if kept.rows.listing().columns() != wanted.columns() or set(header.left_out) - set(listing.ids) != set(
        available.not_utf8
    ):
        return False
    return not changed_files(header.stamps, file_stamps(listing.ids))


def _embeddings_file(spec: str | None) -> Path | None:
    """The path, if a spec names an embeddings file."""
    path = Path(spec or "").expanduser()
    return path if spec and ":" not in spec and path.suffix in READERS else None
