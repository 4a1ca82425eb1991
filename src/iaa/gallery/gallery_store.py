"""Galleries kept beside a run: what is new is embedded, what is gone dropped, the file replaced whole."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from iaa.data.custom import UnusableTable
from iaa.files import Lock
from iaa.gallery.embed_gallery import Progress, embed_names
from iaa.gallery.file_stamps import NOWHERE, Stamp, differing, pack, stamps, unpack
from iaa.gallery.gallery import Gallery
from iaa.gallery.gallery_items import list_source, with_names
from iaa.gallery.gallery_sources import Found, Plan, gallery_file, named
from iaa.inference import Model
from iaa.provenance import NAMELESS
from iaa.retrieval.embeddings import Embeddings

VERSION = 1


def open_gallery(
    model: Model,
    spec: str | Path | None = None,
    *,
    add: str | Path | Iterable[str | Path] = (),
    remove: str | Path | Iterable[str | Path] = (),
    on_progress: Progress = lambda done, total: None,
) -> Gallery:
    """See ``Gallery.open``."""
    spec = None if spec is None else str(spec)
    more, less = _several(add), _several(remove)
    finished = model.path if spec is None and model.path.is_file() else _finished(spec)
    if finished is not None:
        if more or less:
            raise ValueError(
                f"{finished} is a finished file: only galleries kept beside a run can be changed"
            )
        return Gallery(vectors_for(model, finished), finished, spec)
    file = gallery_file(model, spec)
    kept = _read(file, model)
    if kept is not None and not more and not less:
        try:
            plan = _plan(kept, model, spec)
            found = plan.found(model)
            if not _is_stale(kept, model, found):
                return _gallery(kept, file, spec, *found.notes)
        except (OSError, ValueError, ImportError) as error:
            if kept.meta["model"] != model.identity or isinstance(error, UnusableTable):
                raise
            return _gallery(kept, file, spec, f"searching what is kept in {file}: {error}")
    try:
        with _locked(file):
            kept = _read(file, model)  # somebody may have changed it meanwhile
            plan = _plan(kept, model, spec).changed(model, more, less)
            made = _renew(model, plan, kept, file, on_progress, added=tuple(map(named, more)))
    except BlockingIOError as error:
        if kept is None or more or less or kept.meta["model"] != model.identity:
            raise OSError(f"{file} is being changed by another process: try again when it is done") from error
        return _gallery(kept, file, spec, "another process is renewing the gallery: searching the old one")
    return replace(made, spec=spec)


def _several(given: str | Path | Iterable[str | Path]) -> tuple[str, ...]:
    """One name is one thing, not its letters."""
    return (str(given),) if isinstance(given, str | Path) else tuple(map(str, given))


def _renew(
    model: Model,
    plan: Plan,
    kept: Embeddings | None,
    file: Path,
    on_progress: Progress,
    *,
    added: tuple[str, ...] = (),
) -> Gallery:
    """Embed what is not kept, and put both together in the order of the listing."""
    found = plan.found(model)
    listing, notes = found.listing, found.notes
    now = stamps(listing.ids)  # before they are read: what changes meanwhile is noticed next time
    before: dict[str, Stamp] = {}
    left_out: dict[str, str] = {}
    place: dict[str, int] = {}
    if kept is not None and kept.meta["model"] != model.identity:
        kept = None
        notes = ("the model has changed since: all images are embedded anew", *notes)
    if kept is not None:
        before = _stamps(kept)
        changed = differing(before, now)
        place = {name: row for row, name in enumerate(kept.ids) if name not in changed}
        left_out = {name: why for name, why in kept.meta["left_out"].items() if name not in changed}
    todo = [name for name in listing.ids if name not in place and name not in left_out]
    fresh, z, bad = embed_names(model, todo, now, file.with_suffix(".parts"), on_progress)
    left_out = {name: why for name, why in (left_out | bad).items() if name in now} | found.nameless
    for source in added:
        _refuse_unreadable(source, set(place) | set(fresh), left_out)
    place |= {name: row + (0 if kept is None else len(kept)) for row, name in enumerate(fresh)}
    whole = z if kept is None else torch.cat([kept.z, z]) if len(z) else kept.z
    rows = [row for row, name in enumerate(listing.ids) if name in place]
    if not rows:
        why = "".join(f": {name}: {reason}" for name, reason in list(left_out.items())[:1])
        raise ValueError(f"the gallery would be empty{why}")
    listing = listing.take(rows)
    numbers = {name: number for number, name in enumerate(sorted(set(listing.classes)))}
    last = {name: before.get(name, stamp) if stamp == NOWHERE else stamp for name, stamp in now.items()}
    meta = {"gallery": VERSION, "model": model.identity, "left_out": left_out, "plan": plan.as_json()}
    data = Embeddings(
        whole[torch.tensor([place[name] for name in listing.ids])],
        torch.tensor([numbers[name] for name in listing.classes]),
        listing.ids,
        {number: name for name, number in numbers.items()},
        listing.split,
        meta=meta | {"stamps": pack(last.get(name, NOWHERE) for name in (*listing.ids, *left_out))},
    )
    data.save(file)
    return _gallery(data, file, None, *notes)


def _refuse_unreadable(source: str, readable: set[str], left_out: dict[str, str]) -> None:
    """Whoever adds something means images: if none of them can be read, nothing is changed."""
    names = list_source(source).ids
    if readable.isdisjoint(names):
        reason = left_out.get(names[0], NAMELESS)
        raise ValueError(f"nothing of {source.partition(':')[2]} can be read: {reason}")


def _stamps(kept: Embeddings) -> dict[str, Stamp]:
    return unpack(kept.meta.get("stamps"), [*kept.ids, *kept.meta["left_out"]])


def _is_stale(kept: Embeddings, model: Model, found: Found) -> bool:
    if kept.meta["model"] != model.identity:
        return True
    left_out, listing = kept.meta["left_out"], found.listing
    classes = kept.class_names or {}
    names = [classes[label] for label in kept.labels.tolist()]
    there = dict(zip(kept.ids, zip(names, kept.split, strict=True), strict=True))
    wanted = zip(listing.ids, zip(listing.classes, listing.split, strict=True), strict=True)
    expected = {name: rest for name, rest in wanted if name not in left_out}
    if there != expected or set(left_out) - set(listing.ids) != set(found.nameless):
        return True
    return bool(differing(_stamps(kept), stamps(listing.ids)))


def _gallery(kept: Embeddings, file: Path, spec: str | None, *notes: str) -> Gallery:
    return Gallery(kept, file, spec, notes, dict(kept.meta["left_out"]))


def _plan(kept: Embeddings | None, model: Model, spec: str | None) -> Plan:
    return Plan.of(model, spec) if kept is None else Plan.from_json(kept.meta["plan"])


def _read(file: Path, model: Model) -> Embeddings | None:
    if not file.is_file():
        return None
    again = "delete it to have it made again"
    try:
        kept = Embeddings.load(file)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        which = "" if str(file) in str(error) else f"{file} is damaged: "
        raise ValueError(f"{which}{error}: {again}") from error
    meta = kept.meta if isinstance(kept.meta, dict) else {}
    if meta.get("gallery") != VERSION:
        version = meta.get("gallery")
        raise ValueError(f"{file} is a gallery of version {version}, this program reads {VERSION}: {again}")
    if meta.get("model") == model.identity and kept.z.shape[1] != model.dim:
        raise ValueError(
            f"{file} holds vectors of {kept.z.shape[1]} dimensions, the model makes {model.dim}: {again}"
        )
    try:
        _check(kept)
    except ValueError as error:
        raise ValueError(f"{file} is a damaged gallery: {error}: {again}") from error
    return kept


def _check(kept: Embeddings) -> None:
    """The rest of the header, before anything relies on it."""
    if not isinstance(kept.meta.get("model"), dict):
        raise ValueError("it does not say which model made it")
    left_out = kept.meta.get("left_out")
    if not isinstance(left_out, dict) or not all(isinstance(why, str) for why in left_out.values()):
        raise ValueError("it does not say what was left out")
    Plan.from_json(kept.meta.get("plan"))
    names = kept.class_names or {}
    for label in kept.labels.unique().tolist():
        if label not in names:
            raise ValueError(f"its class {label} has no name")


def _finished(spec: str | None) -> Path | None:
    """An embeddings file named as a gallery."""
    from iaa.retrieval.formats import READERS

    path = Path(spec or "").expanduser()
    return path if spec and ":" not in spec and path.suffix in READERS else None


def vectors_for(model: Model, file: Path) -> Embeddings:
    """The rows of an embeddings file in the space of the model."""
    data = with_names(Embeddings.load(file), file)
    made_by = data.meta.get("weights_sha256")
    ours = made_by in model.makers
    if made_by is None and "run" in data.meta:  # runs did not say once
        ours = file.resolve().parent == model.folder.resolve()
        made_by = "another run"
    if model.head is not None and data.z.shape[1] == model.head.features and not ours:
        return replace(data, z=model.embed(data.z))
    if data.z.shape[1] != model.dim:
        raise ValueError(
            f"{file} holds vectors of {data.z.shape[1]} dimensions, the model of {model.path} makes "
            f"{model.dim}: `iaa embed … --model {model.path}` makes fitting ones"
        )
    if made_by is not None and not ours:
        raise ValueError(f"{file} was made by another network than {model.path}: similarities would be noise")
    for what, own in (("pool", model.pool), ("preprocessing", model.identity["preprocessing"])):
        theirs = data.meta.get(what, own)
        if theirs != own:
            raise ValueError(f"{file} was made with {what} {theirs}, the model of {model.path} has {own}")
    return data


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """One process at a time changes a gallery; what a kill left half-written is cleared away."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = Lock(file.with_suffix(".lock"))
    except BlockingIOError:
        raise
    except OSError as error:
        raise OSError(f"cannot keep a gallery in {file.parent}: {error}") from error
    try:
        for half in file.parent.glob(f".{file.stem}-*{file.suffix}"):
            half.unlink(missing_ok=True)
        yield
    finally:
        lock.release()
