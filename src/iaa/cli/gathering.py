"""From run directories to findings: every analysis that a page shows, each allowed to be impossible."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from iaa import IAA
from iaa.analysis.answers import answer, class_scores, typical, worst
from iaa.analysis.atlas import atlas
from iaa.analysis.correlation import correlation
from iaa.analysis.decoder import load as load_decoded
from iaa.analysis.mining import mining
from iaa.analysis.projection import choose, project
from iaa.analysis.similarity import similarity
from iaa.analysis.synthetics import compact, surroundings
from iaa.analysis.variety import variety, weights
from iaa.config import Augment
from iaa.report.findings import Findings, Scores
from iaa.report.pictures import Pictures
from iaa.report.runs import Run, read_run
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.evaluation import Evaluation, compare, evaluate

Found = TypeVar("Found")
Say = Callable[[str], None]
DECODED = "decoded.safetensors"
AROUND = 500
"""Samples around which synthetics are drawn for the share that stays in its class."""


@dataclass(frozen=True)
class Wishes:
    """What of a run is looked at."""

    folders: tuple[Path, ...] = ()
    """Where pictures lie whose ids are no paths."""
    queries: int = 8
    answers: int = 5
    seed: int = 0


def gather(paths: Sequence[Path], wishes: Wishes, say: Say = lambda words: None) -> list[Findings]:
    """Findings of every run, in the order given; the first is what the others are held against."""
    every, scored = [], []
    for path in paths:
        run = read_run(path)
        one, evaluations = _scores(run, wishes, lambda words, name=run.name: say(f"{name}: {words}"))
        every.append(one)
        scored.append(evaluations)
        for part, found in evaluations.items():
            if len(every) > 1 and part in scored[0]:
                differences = _attempt(one, "Differences", compare, scored[0][part], found)
                if differences:
                    one.against_first[part] = differences
        say(f"{run.name}: classes and pairs")
        _analyse(one, wishes)
        say(f"{run.name}: pictures")
        _look(one, every[0], next(iter(evaluations.values())), wishes)
    return every


def augmentation(options: Augment, num_classes: int, dim: int) -> IAA:
    """The method with a run's options; of copies there are always some to show."""
    from iaa.training.assembly import augmentation as of_run

    made = of_run(options, num_classes, dim)
    made.copies = max(1, made.copies)
    return made


def test_rows(data: Embeddings) -> Embeddings:
    """The rows that are scored: those of the test split, or all if there are none."""
    chosen = data.where(split="test")
    return data if chosen.all() or not chosen.any() else data.rows(chosen)


def picture_folders(run: Run, data: Embeddings, more: Sequence[Path]) -> list[Path]:
    """Where ids may start from: folders given, and where the embeddings say their pictures were."""
    folders = [*more, *_root(data)]
    source = run.config.data if run.config else ""
    if source.startswith("embeddings:"):
        file = Path(source.partition(":")[2]).expanduser()
        folders += _root(Embeddings.load(file)) if file.is_file() else []
    return folders


def _root(data: Embeddings) -> list[Path]:
    root = data.meta.get("root")
    return [Path(root)] if isinstance(root, str) else []


def _scores(run: Run, wishes: Wishes, say: Say) -> tuple[Findings, dict[str, Evaluation]]:
    found: dict[str, Evaluation] = {}
    one = None
    for part, file in run.tests.items():
        say("scores")
        data = test_rows(Embeddings.load(file))
        one = one or Findings(run, data, Pictures(picture_folders(run, data, wishes.folders)))
        names = (run.metrics or {}).get("test", {}).get(part, {})
        ks = tuple(int(name[2:]) for name in names if name.startswith("R@")) or (1, 2, 4, 8)
        found[part] = evaluate(data, ks=ks, split=None)
        one.scores[part] = Scores(
            len(found[part].query),
            len(found[part].classes.unique()),
            None if (gallery := found[part].gallery) is None else len(gallery),
            found[part].without_positive,
            found[part].summary(),
        )
    if one is None:
        raise FileNotFoundError(f"{run.path} holds no embeddings")
    first = next(iter(found.values()))
    one.class_scores = {metric: class_scores(first, metric) for metric in ("MAP@R", "R@1")}
    return one, found


def _analyse(one: Findings, wishes: Wishes) -> None:
    options = one.run.config.augment if one.run.config else Augment()
    z, labels, names = one.data.z.float(), one.data.labels, one.data.class_names
    correction: dict[str, Any] = {
        name: getattr(options, name)
        for name in ("neighbors", "mean_width", "cov_width", "global_share", "falloff", "few", "search")
    }
    correction["scale"] = None if options.scale == "raw" else options.scale
    seed = wishes.seed
    one.correlation = _attempt(
        one,
        "Can classes lend to each other?",
        correlation,
        z,
        labels,
        names=names,
        draws=199,
        seed=seed,
        **correction,
    )
    one.similarity = _attempt(one, "Similarities of pairs", similarity, z, labels, name=one.name)
    one.atlas = _attempt(one, "Classes", atlas, z, labels, ids=one.data.ids, names=names, **correction)
    kept, numbers = compact(labels)
    augment = augmentation(options, len(kept), z.shape[1])
    augment.fit(z, numbers)
    one.variety = _attempt(one, "Variety of classes", variety, augment.stats)
    one.weights = _attempt(one, "Weight of the correction", weights, few=options.few)
    one.projection = _attempt(one, "Map of originals and synthetics", project, z, labels, augment, seed=seed)
    if _shows(one):
        rows = choose(labels, classes=len(kept), per_class=1, seed=seed)
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))][:AROUND]
        one.around = _attempt(
            one, "Nearest real pictures", surroundings, z, labels, rows, augment, copies=5, seed=seed
        )
    if one.run.path.is_dir() and (one.run.path / "log.jsonl").is_file():
        one.mining = _attempt(one, "Mining", mining, one.run.path)
    else:
        one.missing["Training"] = "there is no log.jsonl beside these embeddings"
    decoded = one.run.path / DECODED
    if decoded.is_file():
        one.decoded = _attempt(one, "Synthetics decoded to pixels", load_decoded, decoded)
    elif _shows(one):
        one.missing["Synthetics decoded to pixels"] = f"`iaa analyze decode {one.run.path}` makes them"


def _look(one: Findings, first: Findings, found: Evaluation, wishes: Wishes) -> None:
    if not _shows(one):
        one.missing["What is found"] = (
            f"the pictures are not there, such as {one.data.ids[0]!r}; "
            "`iaa report … --pictures FOLDER` says where they lie"
        )
        return
    place = {id: row for row, id in enumerate(one.data.ids)}
    for which, pick in (("typical", typical), ("worst", worst)):
        asked = getattr(first, which)
        rows = None
        if asked is not None:
            ids = [first.data.ids[row] for row in asked.query.tolist()]
            rows = torch.tensor([place[id] for id in ids]) if all(id in place for id in ids) else None
        rows = pick(found, wishes.queries, seed=wishes.seed) if rows is None else rows
        setattr(one, which, answer(found, rows, count=wishes.answers))


def _shows(one: Findings) -> bool:
    """Whether pictures can be shown: some of the ids lead to a file."""
    some = one.data.ids[:: max(1, len(one.data) // 20)]
    return any(one.pictures.path(id) is not None for id in some)


def _attempt(
    one: Findings, what: str, work: Callable[..., Found], *args: Any, **options: Any
) -> Found | None:
    """A result, or None and the reason; only what a user can understand is caught."""
    try:
        return work(*args, **options)
    except (ValueError, ImportError, NotImplementedError) as error:
        one.missing[what] = " ".join(str(error).split()) or type(error).__name__
        return None
