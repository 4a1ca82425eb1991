"""``iaa search``: the images of a gallery most similar to yours, and which class yours may belong to."""

import json as jsonlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from iaa.cli.run_paths import check_model
from iaa.progress import tracking
from iaa.terminal import escape, printable

if TYPE_CHECKING:
    from iaa.gallery.classifier import GalleryClassifier
    from iaa.gallery.gallery import Gallery
    from iaa.gallery.search_results import Queries
    from iaa.inference import Model

SAME = 0.9995
"""Cosine from which on two images are called the same."""
WIDE = 30
"""Percentage points from which on an interval is called wide."""


def command(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    queries: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="QUERY …")] = (),
    top: int = 5,
    gallery: str | None = None,
    classes: bool = False,
    how: Literal["gaussian", "mean", "image"] = "gaussian",
    add: tuple[str, ...] = (),
    remove: tuple[str, ...] = (),
    store: str | None = None,
    index: Literal["auto", "exact", "flat", "hnsw", "ivf"] = "auto",
    expand: int = 0,
    augment_gallery: int = 0,
    rerank: bool = False,
    flip: bool = False,
    json: bool = False,
    html: Path | None = None,
    device: str = "auto",
    devices: int = 1,
    precision: Literal["fp32", "bf16", "fp16"] = "fp32",
) -> int:
    """Find the most similar images: `iaa search RUN photo.jpg --top 5`.

    The gallery is all data of the run, training images included, unless you name another. It is embedded
    once and kept in RUN/galleries; later only new and changed images are embedded. A query that is itself
    in the gallery is not among its own results. Queries that cannot be read are listed, the others are
    answered, and the exit code is 1.

    Args:
        run: A run directory, or an embeddings file that records which network made it.
        queries: Images, folders of images, or embeddings files.
        top: Results per query.
        gallery: folder:DIR (a class per sub-folder), table:FILE, or an embeddings file made by this model.
        classes: Also print the likeliest classes, or that the query belongs to none of them.
        how: Classes by Gaussians with corrected covariance, by the nearest mean, or by the nearest image.
        add: Folders (a class per sub-folder) or images (the class is the name of the image's folder) to add
            to the gallery permanently.
        remove: Classes or paths to remove from the gallery permanently; the files are not touched.
        store: milvus:gallery.db (an embedded Milvus database) or milvus:http://HOST:19530 (a server) keeps
            the gallery there instead of in RUN/galleries; #NAME behind it names the collection.
        index: Exact, or an index of faiss or Milvus (hnsw and ivf are approximate; their measured recall is
            printed). Auto is exact for a file and hnsw for a new collection of Milvus.
        expand: Query expansion: add this many nearest images to every query and search again. It helps where
            classes have more images than that in the gallery, else it harms.
        augment_gallery: Database augmentation: the same for every image of the gallery before it is searched,
            for which each is compared with all others (seconds for 10,000 images).
        rerank: k-reciprocal re-ranking among the 1,000 nearest of every query, some 0.1 seconds each, for
            classes of ten images or more.
        flip: Embed every image as it is and mirrored, and take the mean: twice the time, and the gallery is
            embedded anew.
        json: Print JSON instead of tables.
        html: Also write a page with the images to this file.
        device: auto, cpu, cuda, cuda:1, mps.
        devices: Processes that embed new images of the gallery: a GPU each, or shares of the CPU's cores.
        precision: What the network computes in; a gallery keeps the embeddings it has.
    """
    if top < 1:
        raise ValueError(f"--top must be 1 or more, got {top}")
    if not queries and not add and not remove:
        raise ValueError("name an image to search for, or --add or --remove something")
    check_model(run)
    from iaa.gallery.search_results import read_queries
    from iaa.inference import load

    if rerank and (expand or augment_gallery):
        raise ValueError("--rerank does not go with --expand or --augment-gallery: choose one of them")
    if augment_gallery and store:
        raise ValueError("--augment-gallery needs the gallery in memory: leave --store out")
    model = load(run, device=device, precision=precision, flip=flip)
    kind = None if index == "auto" or store is None else "flat" if index == "exact" else index
    opened = _open(model, gallery, store=store, index=kind, add=add, remove=remove, devices=devices)
    if not queries:
        print(f"{printable(opened.name)}: {_size(len(opened), len(opened.classes))}")
        return 0
    with tracking("queries") as on_progress:
        done = 0

        def on_batch(images: int) -> None:
            nonlocal done
            done += images
            on_progress(done, 0)

        embedded = read_queries(model, map(Path, queries), on_batch=on_batch)
    classifier = None
    if classes:
        from iaa.gallery.classifier import open_classifier

        own = opened if gallery is None else _own(model, devices)
        classifier = open_classifier(opened, how=how, own=own)
    refinement = {"expand": expand, "augment_gallery": augment_gallery, "rerank": rerank}
    asked = "exact" if index == "auto" or store else index
    output = _search(opened, embedded, top, classifier, asked, refinement) | {"run": str(run)}
    if html is not None:
        from iaa.gallery.results_page import write_page

        with tracking("page"):
            write_page(html, opened, output["queries"], title=_title(output), about=_summary(output))
    print(jsonlib.dumps(output, indent=1)) if json else _print(output)
    return _exit_code(embedded, html)


def _search(
    gallery: "Gallery",
    queries: "Queries",
    top: int,
    classifier: "GalleryClassifier | None",
    kind: str,
    refinement: dict[str, Any],
) -> dict[str, Any]:
    """All that is printed, written as JSON and shown on the page."""
    from iaa.gallery.search_results import answer, describe_classifier
    from iaa.retrieval.index import Index
    from iaa.retrieval.query_expansion import expand

    neighbors, options = refinement["augment_gallery"], {k: refinement[k] for k in ("expand", "rerank")}
    index = None
    if kind != "exact" or neighbors:
        index = Index(expand(gallery.data.z, neighbors=neighbors) if neighbors else gallery.data.z, kind=kind)
    about: dict[str, Any] = {"kind": kind} if index is not None else gallery.snapshot.index()
    if index is not None and len(index) > 1:
        about["recall_at_10"] = index.recall()
    return {
        "gallery": gallery.describe(),
        "index": about,
        "classifier": None if classifier is None else describe_classifier(classifier),
        "refinement": refinement,
        "queries": answer(gallery, queries, top=top, classifier=classifier, index=index, **options),
        "unreadable": [{"query": name, "reason": reason} for name, reason in queries.unreadable.items()],
    }


def _open(model: "Model", spec: str | None, **options: Any) -> "Gallery":
    from iaa.allocator import keep_freed_memory
    from iaa.gallery.gallery import Gallery

    keep_freed_memory()  # the gallery may have images to embed
    with tracking("gallery") as on_progress:
        gallery = Gallery.open(model, spec, on_progress=on_progress, **options)
    for note in gallery.notes:
        print(f"note: {printable(note)}", file=sys.stderr)
    for name, reason in gallery.left_out.items():
        print(f"left out of the gallery: {printable(name)}: {reason}", file=sys.stderr)
    return gallery


def _own(model: "Model", devices: int) -> "Gallery | None":
    """The run's own images, whose classes lend covariance and from which the threshold is learned."""
    try:
        return _open(model, None, devices=devices)
    except (OSError, ValueError, ImportError) as error:
        print(f"note: the run's own images are not available: {printable(str(error))}", file=sys.stderr)
        return None


def _exit_code(queries: "Queries", html: Path | None) -> int:
    for name, reason in queries.unreadable.items():
        print(f"cannot read {printable(name)}: {reason}", file=sys.stderr)
    if html is not None:
        print(f"wrote {printable(str(html))}", file=sys.stderr)
    return 1 if queries.unreadable else 0


def _title(output: dict[str, Any]) -> str:
    queries = output["queries"]
    return Path(queries[0]["query"]).name if len(queries) == 1 else f"{len(queries):,} queries"


def _size(images: int, classes: int) -> str:
    plural = "s" if images != 1 else ""
    return f"{images:,} image{plural} of {classes:,} class{'es' if classes != 1 else ''}"


def _summary(output: dict[str, Any]) -> str:
    """What was searched, how, and what counts as unknown, in a sentence."""
    gallery, index, classifier = output["gallery"], output["index"], output["classifier"]
    refinement = output["refinement"]
    text = f"{_size(gallery['images'], gallery['classes'])}, "
    text += "re-ranked by shared neighbours" if refinement["rerank"] else "cosine similarity"
    names = {"expand": "query expansion", "augment_gallery": "database augmentation"}
    if done := [name for option, name in names.items() if refinement[option]]:
        text += f" after {' and '.join(done)}"
    if "recall_at_10" in index:
        text += f"; {index['kind']} finds {100 * index['recall_at_10']:.1f} % of the true ten nearest"
    if classifier is not None and classifier["threshold"] is not None:
        threshold = classifier["threshold"]
        caught, kept = (_rate(threshold[name]) for name in ("unknown_caught", "known_kept"))
        text += (
            "; classes by how far they lie above (+) or below (-) the threshold for known, learned from "
            f"{classifier['learned_from']}: it rejects {caught} of the images of unknown classes and keeps "
            f"{kept} of those of known ones (95 % intervals)"
        )
    elif classifier is not None:
        text += f"; no threshold for unknown: {classifier['learned_from']}"
    return text


def _rate(rate: dict[str, float]) -> str:
    share, low, high = (100 * rate[name] for name in ("share", "low", "high"))
    wide = ", few classes to tell from" if high - low > WIDE else ""
    return f"{share:.0f} % ({low:.0f} to {high:.0f}{wide})"


def _print(output: dict[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)
    answers = output["queries"]
    if not answers:
        return
    several = len(answers) > 1
    folder = _common_folder([hit["path"] for answer in answers for hit in answer["hits"]])
    console.print(_table(output, folder))
    for entry in answers:
        if "classes" in entry:
            console.print(_verdict(entry, several), highlight=False, soft_wrap=True)
    text = escape(_summary(output)) + (f"; paths below {escape(folder)}" if folder else "")
    console.print(text, style="dim", highlight=False, soft_wrap=True)


def _table(output: dict[str, Any], folder: str) -> Table:
    """A row per hit, with paths relative to ``folder``."""
    several = len(output["queries"]) > 1
    table = Table(title=escape(_title(output)), title_justify="left")
    for name in (["query"] if several else []) + ["#", "similarity", "label", "path"]:
        number = name in ("#", "similarity")
        table.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=number)
    for entry in output["queries"]:
        for hit in entry["hits"]:
            query = [escape(Path(entry["query"]).name) if hit["rank"] == 1 else ""] if several else []
            path = os.path.relpath(hit["path"], folder) if folder else hit["path"]
            cells = [str(hit["rank"]), f"{hit['similarity']:.3f}", escape(hit["label"]), escape(path)]
            table.add_row(*query, *cells, end_section=several and hit is entry["hits"][-1])
    return table


def _verdict(entry: dict[str, Any], several: bool) -> str:
    classes = ", ".join(f"{escape(c['label'])} ({c['shown']})" for c in entry["classes"])
    if entry["in_gallery"]:
        classes += "; it is in the gallery itself"
    elif entry["hits"] and entry["hits"][0]["similarity"] > SAME:
        classes += f"; the gallery holds the same image as {escape(entry['hits'][0]['label'])}"
    unknown = entry["known"] is False
    verdict = f"[yellow]unknown[/]; nearest classes: {classes}" if unknown else f"likeliest: {classes}"
    return f"{escape(Path(entry['query']).name)}: {verdict}" if several else verdict


def _common_folder(paths: list[str]) -> str:
    """The folder that all paths share, which a table need not repeat; empty if there is none."""
    folders = {os.path.dirname(path) for path in paths}
    if not folders or not all(map(os.path.isabs, folders)):
        return ""
    common = os.path.commonpath(folders)
    common = os.path.dirname(common) if len(folders) == 1 else common
    return "" if os.path.dirname(common) == common else common
