"""From run directories to findings: every analysis that a page shows, each allowed to be impossible."""

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from iaa import IAA
from iaa.analysis.atlas import atlas
from iaa.analysis.correlation import correlation
from iaa.analysis.covariance_spread import variety, weights
from iaa.analysis.decoder import load as load_decoded
from iaa.analysis.example_queries import answer, class_scores, typical, worst
from iaa.analysis.mining import mining
from iaa.analysis.pair_similarity import similarity
from iaa.analysis.projection import choose, project
from iaa.analysis.synthetics import compact, surroundings
from iaa.config import Augment
from iaa.progress import progress
from iaa.report.analysis_input import Input, Split, read_input
from iaa.report.findings import Findings, Scores
from iaa.report.run_files import RunSummary, read_cost, read_run
from iaa.report.thumbnails import Thumbnails
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.evaluation import Evaluation, compare, evaluate

Found = TypeVar("Found")
DECODED = "decoded.safetensors"
AROUND = 500
"""Samples around which synthetics are drawn for the share that stays in its class."""
DRAWS = 199
"""Permutations, enough for a page; `iaa analyze correlation` makes more."""


@dataclass(frozen=True)
class Wishes:
    """What of a run is looked at."""

    folders: tuple[Path, ...] = ()
    """Where images lie whose ids are no paths."""
    queries: int = 8
    answers: int = 5
    split: Split = "auto"
    """Whose classes are described; auto is those of training, where they can be had."""
    seed: int = 0
    quiet: bool = False


def gather(paths: Sequence[str | os.PathLike[str]], wishes: Wishes) -> list[Findings]:
    """Findings of every run, in the order given; the first is what the others are held against."""
    every: list[Findings] = []
    scored: list[dict[str, Evaluation]] = []
    for path in paths:
        one, evaluations = _scores(read_run(path), wishes)
        every.append(one)
        scored.append(evaluations)
        for part, found in evaluations.items():
            if len(every) > 1 and part in scored[0]:
                differences = _attempt(one, wishes, "Differences", compare, scored[0][part], found)
                one.against_first |= {part: differences} if differences else {}
        _ask(one, every[0], next(iter(evaluations.values())), wishes)
        _training(one, wishes)
        _classes(one, wishes)
    return every


def augmentation(options: Augment, data: Embeddings) -> IAA:
    """The method with a run's options, fitted to the classes of ``data`` as ``compact`` numbers them."""
    kept, numbers = compact(data.labels)
    return IAA(len(kept), data.z.shape[1], **options.keywords()).fit(data.z.float(), numbers)


def image_folders(run: RunSummary, data: Embeddings, more: Sequence[Path]) -> list[Path]:
    """Where ids may start from: folders given, and where the embeddings say their images were."""
    folders = [*more, *_root(data)]
    file = run.config.vectors_file if run.config else None
    if file is not None and file.is_file():
        folders += _root(Embeddings.load(file))
    return folders


def _root(data: Embeddings) -> list[Path]:
    root = data.meta.get("root")
    return [Path(root)] if isinstance(root, str) else []


def _scores(run: RunSummary, wishes: Wishes) -> tuple[Findings, dict[str, Evaluation]]:
    """Every test part scored; analyses of pairs and queries are of the first."""
    found: dict[str, Evaluation] = {}
    scores: dict[str, Scores] = {}
    for part, file in run.tests.items():
        data = Embeddings.load(file)
        tested = data.where(split="test")
        data = data if tested.all() or not tested.any() else data.rows(tested)
        names = (run.metrics or {}).get("test", {}).get(part, {})
        ks = tuple(int(name[2:]) for name in names if name.startswith("R@")) or (1, 2, 4, 8)
        with bar(f"{run.name}: scores", wishes) as tick:
            one = evaluate(data, ks=ks, split=None, tick=tick)
        found[part] = one
        gallery = None if one.gallery is None else len(one.gallery)
        classes = len(one.classes.unique())
        scores[part] = Scores(len(one.query), classes, gallery, one.without_positive, one.summary())
    first = next(iter(found.values())).data
    images = Thumbnails(image_folders(run, first, wishes.folders))
    return Findings(run, first, images, first, scores=scores), found


def _ask(one: Findings, first: Findings, found: Evaluation, wishes: Wishes) -> None:
    """Queries to show: those of the first run where they are here too, so that answers can be compared."""
    if not _shows(one.images, one.data):
        one.missing["What is found"] = (
            f"the images are not there, such as {one.data.ids[0]!r}; "
            "`iaa report … --images FOLDER` says where they lie"
        )
        return
    place = {id: row for row, id in enumerate(one.data.ids)}
    for which, pick in (("typical", typical), ("worst", worst)):
        asked = getattr(first, which)
        ids = [] if asked is None else [first.data.ids[row] for row in asked.query.tolist()]
        if ids and all(id in place for id in ids):
            rows = torch.tensor([place[id] for id in ids])
        else:
            rows = pick(found, wishes.queries, seed=wishes.seed)
        setattr(one, which, answer(found, rows, count=wishes.answers))


def _training(one: Findings, wishes: Wishes) -> None:
    path = one.run.path
    if one.run.log is not None:
        one.mining = _attempt(one, wishes, "Mining", mining, path)
    else:
        one.missing["Training"] = "there is no log.jsonl of a whole epoch beside these embeddings"
    if path.is_dir() and (path / DECODED).is_file():
        one.decoded = _attempt(one, wishes, "Synthetics decoded to pixels", load_decoded, path / DECODED)
    elif one.typical is not None:
        one.missing["Synthetics decoded to pixels"] = f"`iaa analyze decode {path}` makes them"
    if path.is_dir() and (path / "cost.json").is_file():
        one.cost = _attempt(one, wishes, "Cost by copies", read_cost, path / "cost.json")
    elif one.run.config is not None:
        one.missing["Cost by copies"] = f"`iaa analyze cost {path} --out {path}` measures it"
    z, labels = one.data.z, one.data.labels
    one.similarity = _attempt(one, wishes, "Pairs", similarity, z, labels, name=one.name, tick=...)


def _classes(one: Findings, wishes: Wishes) -> None:
    """Everything that rests on class statistics."""
    options = one.run.config.augment if one.run.config else Augment()
    given = _given(one, wishes)
    one.classes, one.split = given.data, given.split
    one.images.folders += _root(given.data)  # the test embeddings of older runs do not say
    z, labels, names = given.data.z.float(), given.data.labels, given.data.class_names
    more: dict[str, Any] = {"names": names, **given.correction}
    lending, seed = "Can classes lend to each other?", wishes.seed
    one.correlation = _attempt(
        one, wishes, lending, correlation, z, labels, draws=DRAWS, seed=seed, tick=..., **more
    )
    one.atlas = _attempt(one, wishes, "Classes", atlas, z, labels, ids=given.data.ids, tick=..., **more)
    scored = _attempt(one, wishes, "Scores of classes", evaluate, given.data, ks=(1,), split=None, tick=...)
    if scored is not None:
        one.class_scores = {metric: class_scores(scored, metric) for metric in ("MAP@R", "R@1")}
    augment = augmentation(options, given.data)
    one.variety = _attempt(one, wishes, "Variety of classes", variety, augment.stats)
    one.weights = weights(few=options.few)
    one.projection = _attempt(
        one, wishes, "Map of originals and synthetics", project, z, labels, augment, seed=seed
    )
    if _shows(one.images, given.data):
        rows = choose(labels, classes=len(labels), per_class=1, seed=seed)
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))][:AROUND]
        one.around = _attempt(
            one, wishes, "Nearest real images", surroundings, z, labels, rows, augment, copies=5, seed=seed
        )


def _given(one: Findings, wishes: Wishes) -> Input:
    """The classes to describe; if those of training cannot be had, those of the test set."""
    try:
        return read_input(one.run.opened or one.run.path, wishes.split)
    except (ValueError, OSError, ImportError) as error:
        if wishes.split != "auto":
            raise
        one.missing["Training classes"] = f"{_words(error)}; the test classes are described instead"
        return Input(one.name, one.data, "test", {})


def _shows(images: Thumbnails, data: Embeddings) -> bool:
    """Whether images can be shown: some of the ids lead to a file."""
    return any(images.path(id) is not None for id in data.ids[:: max(1, len(data) // 20)])


def bar(words: str, wishes: Wishes) -> Any:
    """A bar with the time left, unless it is to be quiet."""
    return nullcontext(lambda done: None) if wishes.quiet else progress(words)


def _attempt(
    one: Findings, wishes: Wishes, what: str, work: Callable[..., Found], *args: Any, **options: Any
) -> Found | None:
    """A result, or None and the reason; ``tick=...`` asks for a bar."""
    try:
        with bar(f"{one.name}: {what}", wishes) as tick:
            return work(*args, **(options | {"tick": tick} if "tick" in options else options))
    except (ValueError, ImportError) as error:
        one.missing[what] = _words(error)
        return None


def _words(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
