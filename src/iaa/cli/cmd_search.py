"""``iaa search``: the images of a gallery that look most like yours, and what class yours may be."""

import json as jsonlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from iaa.gallery.gallery import Gallery
from iaa.gallery.gallery_classifier import open_naming
from iaa.gallery.results import Questions, answer, ask, describe_naming
from iaa.inference import Model, load
from iaa.retrieval.index import Index

SAME = 0.9995
"""Cosine from which on two images are called the same."""


def command(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    queries: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="QUERY …")] = (),
    top: int = 5,
    gallery: str | None = None,
    classes: bool = False,
    how: Literal["gaussian", "mean", "image"] = "gaussian",
    add: tuple[str, ...] = (),
    remove: tuple[str, ...] = (),
    index: Literal["exact", "flat", "hnsw", "ivf"] = "exact",
    json: bool = False,
    html: Path | None = None,
    device: str = "auto",
) -> int:
    """Find the most similar images: `iaa search RUN photo.jpg --top 5`.

    The gallery is everything the run's data holds, training images included, unless you name another. It
    is embedded once and kept in RUN/galleries; afterwards only new or changed images are embedded. A
    query that is itself in the gallery is not among its own answers. Queries that cannot be read are named,
    the others answered, and the exit code is 1.

    Args:
        run: A run directory, or an embeddings file that says which network made it.
        queries: Images, folders of images, or embeddings files.
        top: Answers per query.
        gallery: folder:DIR (a class per sub-folder), table:FILE, or an embeddings file made by this model.
        classes: Also name the likeliest classes, or say that it is none of them.
        how: Classes by Gaussians with corrected covariance, by the nearest mean, or the nearest image.
        add: Folders (a class per sub-folder) or images (the class is the name of the folder an image is
            in) to take into the gallery, for good.
        remove: Classes or paths to take out of it, for good; the files stay.
        index: Exact, or an index of faiss (hnsw and ivf are approximate; their measured recall is printed).
        json: Print JSON instead of tables.
        html: Write a page with the images here as well.
        device: auto, cpu, cuda, cuda:1, mps.
    """
    if top < 1:
        raise ValueError(f"--top must be 1 or more, got {top}")
    if not queries and not add and not remove:
        raise ValueError("name an image to search for, or --add or --remove something")
    model = load(run, device=device)
    chosen = _open(model, gallery, add=add, remove=remove)
    if not queries:
        print(f"{chosen.file}: {_size(len(chosen), len(chosen.classes))}")
        return 0
    with _progress("queries") as on_progress:
        done = 0

        def tick(images: int) -> None:
            nonlocal done
            done += images
            on_progress(done, 0)

        questions = ask(model, map(Path, queries), on_batch=tick)
    naming = None
    if classes:
        own = chosen if gallery is None else _own(model)
        naming = open_naming(chosen, how=how, own=own)
    searched = None if index == "exact" else Index(chosen.data.z, kind=index)
    out: dict[str, Any] = {"run": str(run), "gallery": chosen.describe(), "index": {"kind": index}}
    if searched is not None and len(searched) > 1:
        out["index"]["recall_at_10"] = searched.recall()
    out["naming"] = None if naming is None else describe_naming(naming)
    out["queries"] = answer(chosen, questions, top=top, naming=naming, index=searched)
    out["unreadable"] = [{"query": name, "reason": why} for name, why in questions.unreadable.items()]
    if html is not None:
        from iaa.gallery.results_page import write_page

        with _progress("page"):
            write_page(html, chosen, out["queries"], title=_title(out), about=_about(out))
    print(jsonlib.dumps(out, indent=1)) if json else _show(out)
    return _end(questions, html)


def _open(model: Model, spec: str | None, **changes: tuple[str, ...]) -> Gallery:
    with _progress("gallery") as on_progress:
        found = Gallery.open(model, spec, on_progress=on_progress, **changes)
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    for name, reason in found.left_out.items():
        print(f"left out of the gallery: {name}: {reason}", file=sys.stderr)
    return found


def _own(model: Model) -> Gallery | None:
    """The run's own images, whose classes lend covariance and teach the threshold."""
    try:
        return _open(model, None)
    except (OSError, ValueError, ImportError) as error:
        print(f"note: the run's own images are not here to learn from: {error}", file=sys.stderr)
        return None


def _end(questions: Questions, html: Path | None) -> int:
    for name, reason in questions.unreadable.items():
        print(f"cannot read image {name}: {reason}", file=sys.stderr)
    if html is not None:
        print(f"wrote {html}", file=sys.stderr)
    return 1 if questions.unreadable else 0


def _title(out: dict[str, Any]) -> str:
    asked = out["queries"]
    return Path(asked[0]["query"]).name if len(asked) == 1 else f"{len(asked):,} queries"


def _size(images: int, classes: int) -> str:
    several = "s" if images != 1 else ""
    return f"{images:,} image{several} of {classes:,} class{'es' if classes != 1 else ''}"


def _about(out: dict[str, Any]) -> str:
    """What was searched, how, and what is meant by unknown, in words."""
    gallery, index, naming = out["gallery"], out["index"], out["naming"]
    words = f"{_size(gallery['images'], gallery['classes'])}, cosine similarity"
    if "recall_at_10" in index:
        words += f"; {index['kind']} finds {100 * index['recall_at_10']:.1f} % of the true ten nearest"
    if naming is not None and naming["threshold"] is not None:
        least = naming["threshold"]
        words += (
            "; classes by how far they lie above (+) or below (-) what counts as known, learnt on "
            f"{naming['learnt_on']}, where that keeps {100 * least['known_kept']:.0f} % of the known and "
            f"catches {100 * least['unknown_caught']:.0f} % of the unknown"
        )
    elif naming is not None:
        words += f"; no threshold for unknown: {naming['learnt_on']}"
    return words


def _show(out: dict[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)
    answers = out["queries"]
    several, base = len(answers) > 1, _base([hit["path"] for one in answers for hit in one["hits"]])
    columns = (["query"] if several else []) + ["#", "similarity", "label", "path"]
    table = Table(title=escape(_title(out)), title_justify="left")
    for name in columns:
        table.add_column(
            name,
            justify="right" if name in ("#", "similarity") else "left",
            overflow="fold",
            no_wrap=name in ("#", "similarity"),
        )
    for one in answers:
        for hit in one["hits"]:
            first = [escape(Path(one["query"]).name) if hit["rank"] == 1 else ""] if several else []
            cells = [
                f"{hit['rank']}",
                f"{hit['similarity']:.3f}",
                escape(hit["label"]),
                escape(os.path.relpath(hit["path"], base) if base else hit["path"]),
            ]
            table.add_row(*first, *cells, end_section=several and hit is one["hits"][-1])
    if answers:
        console.print(table)
        for one in answers:
            if "classes" in one:
                console.print(_verdict(one, several), highlight=False, soft_wrap=True)
        words = _about(out) + (f"; paths below {base}" if base else "")
        console.print(words, style="dim", highlight=False, soft_wrap=True)


def _verdict(one: dict[str, Any], several: bool) -> str:
    named = ", ".join(f"{escape(c['label'])} ({c['shown']})" for c in one["classes"])
    if one["in_gallery"]:
        named += "; it is in the gallery itself"
    elif one["hits"] and one["hits"][0]["similarity"] > SAME:
        named += f"; the gallery holds the same image as {escape(one['hits'][0]['label'])}"
    verdict = (
        f"[yellow]unknown[/]; nearest classes: {named}" if one["known"] is False else f"likeliest: {named}"
    )
    return f"{escape(Path(one['query']).name)}: {verdict}" if several else verdict


def _base(paths: list[str]) -> str:
    """The folder that all paths share, so that a table need not repeat it; nothing where there is none."""
    folders = {os.path.dirname(path) for path in paths}
    if not folders or not all(map(os.path.isabs, folders)):
        return ""
    shared = os.path.commonpath(folders)
    shared = os.path.dirname(shared) if len(folders) == 1 else shared
    return "" if os.path.dirname(shared) == shared else shared


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left on stderr, silent where that is no terminal."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
