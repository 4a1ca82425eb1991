"""Questions and answers as plain data: what `iaa search` prints, writes as JSON and shows on a page."""

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from iaa.data.file_listing import images_under
from iaa.gallery.gallery import Gallery
from iaa.gallery.gallery_classifier import Naming
from iaa.gallery.gallery_items import image
from iaa.gallery.gallery_store import vectors_for
from iaa.inference import Model
from iaa.retrieval.formats import READERS
from iaa.retrieval.index import Index


@dataclass(frozen=True)
class Questions:
    """What is looked for: a name and a vector each, and what could not be read."""

    names: list[str]
    z: Tensor
    unreadable: dict[str, str]


def ask(
    model: Model, places: Iterable[Path], *, on_batch: Callable[[int], None] = lambda done: None
) -> Questions:
    """Queries from images, folders of images and embeddings files."""
    names: list[str] = []
    vectors: list[Tensor] = []
    paths: list[str] = []
    for place in places:
        if place.suffix in READERS and place.is_file():
            data = vectors_for(model, place)
            root = data.meta.get("root")
            names += [image(name, root).path for name in data.ids]
            vectors.append(data.z.float())
        elif place.is_dir():
            found = images_under(place)
            if not found:
                raise ValueError(f"folder {place} holds no images")
            paths += found
        elif place.exists():
            paths.append(str(place))
        else:
            raise FileNotFoundError(f"there is no image, folder or embeddings file {place}")
    unreadable: dict[str, str] = {}
    if paths:
        z, rows, bad = model.embed_readable(paths, on_batch=on_batch)
        names += [paths[row] for row in rows]
        vectors.append(z)
        unreadable = {paths[row]: error.reason for row, error in bad.items()}
    return Questions(names, torch.cat(vectors) if vectors else torch.empty(0, model.dim), unreadable)


def answer(
    gallery: Gallery,
    questions: Questions,
    *,
    top: int = 5,
    naming: Naming | None = None,
    index: Index | None = None,
) -> list[dict[str, Any]]:
    """Per query its most similar images, never itself, and with ``naming`` its likeliest classes."""
    if not questions.names:
        return []
    rows = gallery.rows_by_path
    own = [rows.get(os.path.abspath(name), []) for name in questions.names]
    hits = gallery.search(questions.z, top=top, exclude=own, index=index)
    root = gallery.data.meta.get("root")
    answers: list[dict[str, Any]] = [
        {
            "query": name,
            "in_gallery": bool(mine),
            "hits": [
                {
                    "rank": rank,
                    "similarity": round(hit.similarity, 6),
                    "label": hit.label,
                    "path": image(hit.id, root).path,
                    "id": hit.id,
                    "row": hit.row,
                }
                for rank, hit in enumerate(found, start=1)
            ],
        }
        for name, mine, found in zip(questions.names, own, hits, strict=True)
    ]
    if naming is not None:
        for one, names in zip(answers, naming.names(questions.z), strict=True):
            one["classes"] = [
                {"label": c.label, "score": round(c.score, 6), "shown": _shown(c.score, naming)}
                for c in names.candidates
            ]
            one["known"] = names.known
    return answers


def _shown(score: float, naming: Naming) -> str:
    """How far above (+) or below (-) the threshold; the score itself where there is none."""
    return f"{score:.3f}" if naming.threshold is None else f"{score - naming.threshold.score:+.3f}"


def describe_naming(naming: Naming) -> dict[str, Any]:
    """How classes are found, and where the threshold comes from."""
    threshold = None if naming.threshold is None else asdict(naming.threshold)
    return {"how": naming.identifier.how, "threshold": threshold, "learnt_on": naming.learnt_on}
