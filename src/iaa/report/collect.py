"""From run directories to findings: every analysis that the report shows; one that fails leaves a reason."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from iaa.analysis.atlas import atlas
from iaa.analysis.correlation import correlation
from iaa.analysis.cost import read_cost
from iaa.analysis.covariance_spread import variety, weights
from iaa.analysis.decoder import load as load_decoded
from iaa.analysis.example_queries import class_scores, retrieve, typical, worst
from iaa.analysis.pair_similarity import similarity
from iaa.analysis.synthetics import choose, project, synthetic_neighbors
from iaa.analysis.training_log import mining
from iaa.config import Augment
from iaa.errors import one_line
from iaa.method.augment import IAA
from iaa.progress import progress
from iaa.report.analysis_input import AnalysisInput, Split, read_input
from iaa.report.findings import Findings, RunSummary, Scores, read_run
from iaa.report.thumbnails import Thumbnails
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.evaluation import Evaluation, compare, evaluate

Result = TypeVar("Result")
Tick = Callable[[float], None]
DECODED = "decoded.safetensors"
AROUND = 500
"""Samples around which synthetics are drawn, to see how many stay in their class."""
DRAWS = 199
"""Permutations, enough for a page; `iaa analyze correlation` makes more."""


@dataclass(frozen=True)
class CollectOptions:
    """What is collected about a run."""

    folders: tuple[Path, ...] = ()
    """Where to look for images whose ids are not paths."""
    queries: int = 8
    answers: int = 5
    split: Split = "auto"
    """Which classes are described; auto takes the training classes, where they can be embedded."""
    seed: int = 0
    quiet: bool = False

    def progress(self, description: str) -> AbstractContextManager[Tick]:
        """A progress bar with the time left, unless quiet."""
        return progress(description, quiet=self.quiet)


def collect(paths: Sequence[str | os.PathLike[str]], options: CollectOptions) -> list[Findings]:
    """The findings of every run, in the order given; the others are compared with the first."""
    collected: list[Findings] = []
    evaluated: list[dict[str, Evaluation]] = []
    for path in paths:
        findings, evaluations = _score(read_run(path), options)
        collected.append(findings)
        evaluated.append(evaluations)
        for part, evaluation in evaluations.items():
            if len(collected) > 1 and part in evaluated[0]:
                first = evaluated[0][part]
                differences = _attempt(findings, options, "Differences", compare, first, evaluation)
                findings.against_first |= {part: differences} if differences else {}
        _add_queries(findings, collected[0], next(iter(evaluations.values())), options)
        _add_training(findings, options)
        _add_classes(findings, options)
    return collected


def augmentation(options: Augment, data: Embeddings) -> IAA:
    """The method with a run's options, fitted to the classes of ``data`` in the order of their labels."""
    labels, numbers = data.labels.unique(return_inverse=True)
    return IAA(len(labels), data.z.shape[1], **options.keywords()).fit(data.z.float(), numbers)


def image_folders(run: RunSummary, data: Embeddings, more: Sequence[Path]) -> list[Path]:
    """Folders that image ids may be relative to: those given, and those named by the embeddings."""
    folders = [*more, *_root(data)]
    file = run.config.vectors_file if run.config else None
    if file is not None and file.is_file():
        folders += _root(Embeddings.load(file))
    return folders


def _root(data: Embeddings) -> list[Path]:
    root = data.meta.get("root")
    return [Path(root)] if isinstance(root, str) else []


def _score(run: RunSummary, options: CollectOptions) -> tuple[Findings, dict[str, Evaluation]]:
    """Score every test part; pairs and queries are analysed for the first."""
    evaluations: dict[str, Evaluation] = {}
    scores: dict[str, Scores] = {}
    for part, file in run.tests.items():
        data = Embeddings.load(file)
        tested = data.where(split="test")
        data = data if tested.all() or not tested.any() else data.rows(tested)
        metrics = run.metrics.get("test", {}).get(part, {})
        ks = tuple(int(metric[2:]) for metric in metrics if metric.startswith("R@")) or (1, 2, 4, 8)
        with options.progress(f"{run.name}: scores") as tick:
            evaluation = evaluate(data, ks=ks, split=None, tick=tick)
        evaluations[part] = evaluation
        scores[part] = Scores(
            queries=len(evaluation.query),
            classes=len(evaluation.classes.unique()),
            gallery=None if evaluation.gallery is None else len(evaluation.gallery),
            without_positive=evaluation.without_positive,
            metrics=evaluation.summary(),
        )
    first = next(iter(evaluations.values())).data
    images = Thumbnails(image_folders(run, first, options.folders))
    return Findings(run, first, images, first, scores=scores), evaluations


def _add_queries(
    findings: Findings, first: Findings, evaluation: Evaluation, options: CollectOptions
) -> None:
    """Queries to show: those of the first run if they are here too, so that answers can be compared."""
    if not _has_images(findings.images, findings.data):
        findings.missing["Retrieved images"] = (
            f"the images cannot be found, such as {findings.data.ids[0]!r}; "
            "`iaa report … --images FOLDER` says where they are"
        )
        return
    row_of = {id: row for row, id in enumerate(findings.data.ids)}
    for which, pick in (("typical", typical), ("worst", worst)):
        shown = getattr(first, which)
        ids = [] if shown is None else [first.data.ids[row] for row in shown.query.tolist()]
        if ids and all(id in row_of for id in ids):
            rows = torch.tensor([row_of[id] for id in ids])
        else:
            rows = pick(evaluation, options.queries, seed=options.seed)
        setattr(findings, which, retrieve(evaluation, rows, count=options.answers))


def _add_training(findings: Findings, options: CollectOptions) -> None:
    """What the log holds, and what `iaa analyze decode` and `iaa analyze cost` left in the run."""
    path = findings.run.path
    if findings.run.log is not None:
        findings.mining = _attempt(findings, options, "Mining", mining, path)
    else:
        findings.missing["Training"] = "there is no log.jsonl with a complete epoch next to these embeddings"
    what = "Synthetics decoded to pixels"
    if path.is_dir() and (path / DECODED).is_file():
        findings.decoded = _attempt(findings, options, what, load_decoded, path / DECODED)
    elif findings.typical is not None:
        findings.missing[what] = f"`iaa analyze decode {path}` makes them"
    what = "Cost by copies"
    if path.is_dir() and (path / "cost.json").is_file():
        findings.cost = _attempt(findings, options, what, read_cost, path / "cost.json")
    elif findings.run.config is not None:
        findings.missing[what] = f"`iaa analyze cost {path} --out {path}` measures it"
    z, labels = findings.data.z, findings.data.labels
    findings.similarity = _attempt(
        findings, options, "Pairs", similarity, z, labels, name=findings.name, tick=...
    )


def _add_classes(findings: Findings, options: CollectOptions) -> None:
    """Everything that is based on class statistics."""
    config = findings.run.config.augment if findings.run.config else Augment()
    analysed = _described_classes(findings, options)
    data, seed = analysed.data, options.seed
    findings.classes, findings.split = data, analysed.split
    z, labels = data.z.float(), data.labels
    correction: dict[str, Any] = {"names": data.class_names, **analysed.correction}

    def attempt(what: str, work: Callable[..., Result], *args: Any, **keywords: Any) -> Result | None:
        return _attempt(findings, options, what, work, *args, **keywords)

    findings.correlation = attempt(
        "Can classes lend to each other?",
        correlation,
        *(z, labels),
        draws=DRAWS,
        seed=seed,
        tick=...,
        **correction,
    )
    findings.atlas = attempt("Classes", atlas, z, labels, ids=data.ids, tick=..., **correction)
    evaluation = attempt("Scores of classes", evaluate, data, ks=(1,), split=None, tick=...)
    if evaluation is not None:
        findings.class_scores = {metric: class_scores(evaluation, metric) for metric in ("MAP@R", "R@1")}
    augment = augmentation(config, data)
    findings.variety = attempt("Variety of classes", variety, augment.stats)
    findings.weights = weights(few=config.few)
    findings.projection = attempt("Map of originals and synthetics", project, z, labels, augment, seed=seed)
    if _has_images(findings.images, data):
        rows = choose(labels, classes=len(labels), per_class=1, seed=seed)
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))][:AROUND]
        findings.around = attempt(
            "Nearest real images", synthetic_neighbors, z, labels, rows, augment, copies=5, seed=seed
        )


def _described_classes(findings: Findings, options: CollectOptions) -> AnalysisInput:
    """The classes to describe; if those of training cannot be embedded, those of the test set."""
    try:
        return read_input(findings.run.opened or findings.run.path, options.split)
    except (ValueError, OSError, ImportError) as error:
        if options.split != "auto":
            raise
        findings.missing["Training classes"] = f"{one_line(error)}; the test classes are described instead"
        return AnalysisInput(findings.name, findings.data, "test", {})


def _has_images(images: Thumbnails, data: Embeddings) -> bool:
    """Whether images can be shown: some of the ids lead to a file."""
    return any(images.path(id) is not None for id in data.ids[:: max(1, len(data) // 20)])


def _attempt(
    findings: Findings,
    options: CollectOptions,
    what: str,
    work: Callable[..., Result],
    *args: Any,
    **keywords: Any,
) -> Result | None:
    """A result, or None and the reason in ``findings.missing``; ``tick=...`` asks for a progress bar."""
    try:
        with options.progress(f"{findings.name}: {what}") as tick:
            return work(*args, **(keywords | {"tick": tick} if "tick" in keywords else keywords))
    except (ValueError, ImportError) as error:
        findings.missing[what] = one_line(error)
        return None
