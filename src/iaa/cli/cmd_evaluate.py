"""``iaa evaluate``: R@K, RP and MAP@R of embeddings files, with intervals, comparison and worst classes."""

import json as jsonlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from iaa.analysis.regression import regression_note
from iaa.cli.run_paths import check_paths
from iaa.progress import progress
from iaa.terminal import escape

if TYPE_CHECKING:
    from iaa.retrieval.evaluation import Evaluation


def command(
    paths: Annotated[tuple[Path, ...], tyro.conf.Positional],
    ks: tuple[int, ...] = (1, 2, 4, 8),
    split: Literal["train", "val", "test", "all"] = "test",
    against: Path | None = None,
    per_class: bool = False,
    gallery_draws: int = 0,
    seed: int = 0,
    distance: Literal["cosine", "euclidean"] = "cosine",
    index: Literal["exact", "flat", "hnsw", "ivf"] = "exact",
    expand: int = 0,
    augment_gallery: int = 0,
    rerank: bool = False,
    json: bool = False,
) -> int:
    """Score embeddings: R@K, R-precision and MAP@R in percent, with 95 % bootstrap intervals.

    Args:
        paths: Embeddings files (.safetensors, .npz, .npy + .csv, .parquet) or run directories.
        ks: The values of K in R@K.
        split: Which rows to score.
        against: Another file or run of the same data: is the first better? A paired comparison.
        per_class: List the worst classes, each with an example.
        gallery_draws: VehicleID's protocol: this many times, one random image per class is the gallery.
        seed: Seed of the gallery draws.
        distance: How neighbours are ranked.
        index: Exact, or a faiss index; hnsw and ivf are approximate, and say what their scores are off by.
        expand: Query expansion: add this many nearest of the gallery to every query, at the cost of a second
            search. It helps where classes have more gallery images than that, else it harms.
        augment_gallery: Database augmentation: the same for every image of the gallery, once. Needs queries
            apart from the gallery.
        rerank: k-reciprocal re-ranking of the nearest 200, for classes of ten gallery images or more; about a
            millisecond per image.
        json: Print JSON instead of tables.
    """
    check_paths(*paths, *([against] if against else []))
    files = [file for path in paths for file in _files(path)]
    if not files:
        raise ValueError("name at least one embeddings file or run directory")
    options: dict[str, Any] = {"ks": ks, "split": None if split == "all" else split, "distance": distance}
    out: dict[str, Any] = {"ks": ks, "split": split, "distance": distance, "index": index, "files": []}
    refinement = {"expand": expand, "augment_gallery": augment_gallery, "rerank": rerank}
    if any(refinement.values()) and (gallery_draws or per_class):
        raise ValueError(
            "leave --gallery-draws and --per-class out with --expand, --augment-gallery and --rerank"
        )
    if gallery_draws:
        if against or per_class or index != "exact":
            raise ValueError(
                "--gallery-draws repeats exact scoring: leave --against, --per-class and --index out"
            )
        out["files"] = [_draw_galleries(file, gallery_draws, seed, options) for file in files]
    else:
        options |= {"index": None if index == "exact" else index} | refinement
        out["refinement"] = refinement
        evaluations = [_score(file, options) for file in files]
        out["files"] = [
            _described(file, evaluation, per_class)
            for file, evaluation in zip(files, evaluations, strict=True)
        ]
        if against:
            out["against"] = _compared(against, files, evaluations, options)
    if json:
        print(jsonlib.dumps(out, indent=1))
    else:
        _show(out)
    return 0


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    from iaa.runs import Run

    files = list(Run(path).embeddings_files.values())
    if not files:
        raise FileNotFoundError(f"no embeddings*.safetensors in {path}: `iaa embed` writes one")
    return files


def _draw_galleries(file: Path, draws: int, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    from iaa.retrieval.embeddings import Embeddings
    from iaa.retrieval.evaluation import draw_galleries

    with progress(file.name) as tick:
        metrics = draw_galleries(Embeddings.load(file), draws, seed=seed, tick=tick, **options)
    return {"file": str(file), "metrics": metrics, "gallery_draws": draws, "seed": seed}


def _score(file: Path, options: dict[str, Any]) -> "Evaluation":
    from iaa.retrieval.embeddings import Embeddings
    from iaa.retrieval.evaluation import evaluate

    data = Embeddings.load(file)
    with progress(file.name) as tick:
        try:
            return evaluate(data, tick=tick, **options)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error


def _described(file: Path, evaluation: "Evaluation", per_class: bool) -> dict[str, Any]:
    from iaa.retrieval.evaluation import worst_classes

    row = {
        "file": str(file),
        "queries": len(evaluation.query),
        "gallery": "all others" if evaluation.gallery is None else len(evaluation.gallery),
        "without_positive": evaluation.without_positive,
        "classes": len(evaluation.classes.unique()),
        "metrics": evaluation.summary(),
    }
    if evaluation.result.index_recall is not None:
        row["index_recall"] = evaluation.result.index_recall
        error, sample = evaluation.index_error(), evaluation.result.sample
        row["index_error"] = {"queries": 0 if sample is None else len(sample), "metrics": error}
    return row | ({"worst_classes": worst_classes(evaluation)} if per_class else {})


def _compared(
    path: Path, files: list[Path], evaluations: "list[Evaluation]", options: dict[str, Any]
) -> dict[str, Any]:
    from iaa.retrieval.evaluation import compare
    from iaa.retrieval.significance import DRAWS

    others = _files(path)
    if len(others) != 1 or len(files) != 1:
        raise ValueError(f"--against compares one file with one other, got {len(files)} and {len(others)}")
    other = _score(others[0], options)
    means = {name: float(value.mean()) for name, value in other.values().items()}
    this = {name: float(value.mean()) for name, value in evaluations[0].values().items()}
    differences = compare(other, evaluations[0])
    worse = any(differences[name].high < 0 for name in ("R@1", "MAP@R") if name in differences)
    name, reference = (_short(file, several=True) for file in (files[0], others[0]))
    return {
        "file": str(others[0]),
        "test": f"two-sided sign-flip permutation test, {DRAWS} flips; 95 % bootstrap interval over classes",
        "metrics": {
            metric: asdict(difference) | {"other": means[metric]}
            for metric, difference in differences.items()
        },
        "warning": regression_note(this, {reference: means}, name=name) if worse else "",
    }


def _show(out: dict[str, Any]) -> None:
    console = Console(width=None if Console().is_terminal else 160)
    files = out["files"]
    drawn = "gallery_draws" in files[0]
    if len(files) == 1 and not drawn:
        _show_one(console, files[0])
    else:
        _show_many(console, files, drawn)
    for row in files:
        if row.get("without_positive"):
            print(f"{row['without_positive']} of {row['queries']} queries have no positive and are left out.")
        if "index_recall" in row:
            print(f"The index found {100 * row['index_recall']:.1f} % of the true ten nearest (200 sampled).")
            print(_error(row["index_error"]))
    if "against" in out:
        _show_comparison(console, out["against"], files[0])
    for row in files:
        if "worst_classes" in row:
            _show_worst(console, row)


def _error(error: dict[str, Any]) -> str:
    """One line: what the approximate scores are off by."""
    metrics = (
        f"{name} {off['mean']:+.2f} [{off['low']:+.2f}, {off['high']:+.2f}]"
        for name, off in error["metrics"].items()
    )
    return f"Off the exact scores, on {error['queries']:,} sampled queries (95 %): {', '.join(metrics)}."


def _show_one(console: Console, row: dict[str, Any]) -> None:
    table = Table(
        "metric", "%", "95 % over queries", "95 % over classes", title=_title(row), title_justify="left"
    )
    for name, score in row["metrics"].items():
        intervals = (_span(score[key]) for key in ("over_queries", "over_classes"))
        table.add_row(name, f"{score['value']:.2f}", *intervals)
    console.print(table)


def _show_many(console: Console, files: list[dict[str, Any]], drawn: bool) -> None:
    note = (
        f"mean ± spread over {files[0]['gallery_draws']} galleries"
        if drawn
        else "with 95 % intervals over classes"
    )
    table = Table("file", *files[0]["metrics"], title=f"percent, {note}", title_justify="left")
    folders = {Path(row["file"]).parent for row in files}
    for row in files:
        cells = [
            f"{score['value']:.2f} ± {score['spread']:.2f}"
            if drawn
            else f"{score['value']:.2f} {_span(score['over_classes'])}"
            for score in row["metrics"].values()
        ]
        table.add_row(escape(_short(Path(row["file"]), several=len(folders) > 1)), *cells)
    console.print(table)


def _short(file: Path, *, several: bool) -> str:
    """A name that distinguishes the file from the others: for runs, that of their folder."""
    name = file.name.removeprefix("embeddings-")
    if not several:
        return name
    return file.parent.name if file.name == "embeddings.safetensors" else f"{file.parent.name}/{name}"


def _show_comparison(console: Console, against: dict[str, Any], row: dict[str, Any]) -> None:
    title = escape(f"{row['file']} against {against['file']}: {against['test']}")
    table = Table(
        "metric", "other", "this", "difference", "p by query", "p by class", title=title, title_justify="left"
    )
    for name, test in against["metrics"].items():
        difference = f"{test['mean']:+.2f} {_span((test['low'], test['high']))}"
        this = f"{row['metrics'][name]['value']:.2f}"
        p_values = (f"{test[key]:.4f}" for key in ("p_queries", "p_classes"))
        table.add_row(name, f"{test['other']:.2f}", this, difference, *p_values)
    console.print(table)
    if against["warning"]:
        warning = f"Warning: {against['warning']}"
        console.print(warning, style="bold red", highlight=False, markup=False, soft_wrap=True)


def _show_worst(console: Console, row: dict[str, Any]) -> None:
    worst = row["worst_classes"]
    metrics = [name for name in row["metrics"] if name in ("R@1", "RP", "MAP@R")]
    title = escape(f"worst classes of {row['file']}")
    table = Table(
        "class", "queries", *metrics, "example", "its nearest", "of class", title=title, title_justify="left"
    )
    for line in worst:
        cells = [f"{line[name]:.1f}" for name in metrics]
        names = (escape(line[key]) for key in ("example", "nearest", "nearest_class"))
        table.add_row(escape(line["class"]), str(line["queries"]), *cells, *names)
    console.print(table)


def _title(row: dict[str, Any]) -> str:
    counts = f"{row['queries']} queries of {row['classes']} classes, gallery: {row['gallery']}"
    return escape(f"{row['file']}: {counts}")


def _span(pair: Sequence[float]) -> str:
    return f"[{pair[0]:.2f}, {pair[1]:.2f}]".replace("[", r"\[")
