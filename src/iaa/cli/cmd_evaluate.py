"""``iaa evaluate``: R@K, RP and MAP@R of embeddings files, with intervals, comparison and worst classes."""

import json as jsonlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from iaa.progress import progress
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.evaluation import Evaluation, compare, draw_galleries, evaluate, worst_classes
from iaa.retrieval.significance import DRAWS
from iaa.runs import Run


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
    json: bool = False,
) -> int:
    """Score embeddings: R@K, R-precision and MAP@R in percent, with 95 % bootstrap intervals.

    Args:
        paths: Embeddings files (.safetensors, .npz, .npy + .csv, .parquet) or run directories.
        ks: The K of each R@K.
        split: Which rows to score.
        against: Another file or run of the same data: is the first better? A paired comparison.
        per_class: List the worst classes, each with an example.
        gallery_draws: VehicleID's protocol: this many times, one random image per class is the gallery.
        seed: Of the gallery draws.
        distance: How neighbours are found.
        index: Exact, or a faiss index (approximate if hnsw or ivf).
        json: Print JSON instead of tables.
    """
    files = [file for path in paths for file in _files(path)]
    if not files:
        raise ValueError("name at least one embeddings file or run directory")
    options: dict[str, Any] = {"ks": ks, "split": None if split == "all" else split, "distance": distance}
    out: dict[str, Any] = {"ks": ks, "split": split, "distance": distance, "index": index, "files": []}
    if gallery_draws:
        if against or per_class or index != "exact":
            raise ValueError(
                "--gallery-draws repeats exact scoring and goes with none of --against, --per-class, --index"
            )
        for file in files:
            with progress(file.name) as tick:
                drawn = draw_galleries(Embeddings.load(file), gallery_draws, seed=seed, tick=tick, **options)
            out["files"].append(
                {"file": str(file), "metrics": drawn, "gallery_draws": gallery_draws, "seed": seed}
            )
    else:
        options["index"] = None if index == "exact" else index
        found = [_score(file, options) for file in files]
        out["files"] = [_described(file, one, per_class) for file, one in zip(files, found, strict=True)]
        if against:
            out["against"] = _compared(against, files, found, options)
    if json:
        print(jsonlib.dumps(out, indent=1))
    else:
        _show(out)
    return 0


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = list(Run(path).embeddings_files.values())
    if not files:
        raise FileNotFoundError(f"no embeddings*.safetensors in {path}: `iaa embed` writes one")
    return files


def _score(file: Path, options: dict[str, Any]) -> Evaluation:
    data = Embeddings.load(file)
    with progress(file.name) as tick:
        try:
            return evaluate(data, tick=tick, **options)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error


def _described(file: Path, found: Evaluation, per_class: bool) -> dict[str, Any]:
    gallery = "all others" if found.gallery is None else len(found.gallery)
    row = {
        "file": str(file),
        "queries": len(found.query),
        "gallery": gallery,
        "without_positive": found.without_positive,
    }
    row |= {"classes": len(found.classes.unique()), "metrics": found.summary()}
    row |= {"index_recall": found.result.index_recall} if found.result.index_recall is not None else {}
    return row | ({"worst_classes": worst_classes(found)} if per_class else {})


def _compared(
    path: Path, files: list[Path], found: list[Evaluation], options: dict[str, Any]
) -> dict[str, Any]:
    others = _files(path)
    if len(others) != 1 or len(files) != 1:
        raise ValueError(f"--against compares one file with one other, got {len(files)} and {len(others)}")
    other = _score(others[0], options)
    means = {name: float(value.mean()) for name, value in other.values().items()}
    differences = {
        name: asdict(one) | {"other": means[name]} for name, one in compare(other, found[0]).items()
    }
    test = f"two-sided sign-flip permutation test, {DRAWS} flips; 95 % bootstrap interval over classes"
    return {"file": str(others[0]), "test": test, "metrics": differences}


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
            print(f"{row['without_positive']} of {row['queries']} queries have no positive: left out.")
        if "index_recall" in row:
            print(f"The index found {100 * row['index_recall']:.1f} % of the true ten nearest (200 sampled).")
    if "against" in out:
        _show_comparison(console, out["against"], files[0])
    for row in files:
        if "worst_classes" in row:
            _show_worst(console, row)


def _show_one(console: Console, row: dict[str, Any]) -> None:
    table = Table(
        "metric", "%", "95 % over queries", "95 % over classes", title=_title(row), title_justify="left"
    )
    for name, one in row["metrics"].items():
        table.add_row(name, f"{one['value']:.2f}", _span(one["over_queries"]), _span(one["over_classes"]))
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
            f"{one['value']:.2f} ± {one['spread']:.2f}"
            if drawn
            else f"{one['value']:.2f} {_span(one['over_classes'])}"
            for one in row["metrics"].values()
        ]
        table.add_row(escape(_short(Path(row["file"]), several=len(folders) > 1)), *cells)
    console.print(table)


def _short(file: Path, *, several: bool) -> str:
    """As much of a name as tells it from the others: of runs their folder."""
    name = file.name.removeprefix("embeddings-")
    if not several:
        return name
    return file.parent.name if file.name == "embeddings.safetensors" else f"{file.parent.name}/{name}"


def _show_comparison(console: Console, against: dict[str, Any], row: dict[str, Any]) -> None:
    title = escape(f"{row['file']} against {against['file']}: {against['test']}")
    table = Table(
        "metric", "other", "this", "difference", "p by query", "p by class", title=title, title_justify="left"
    )
    for name, one in against["metrics"].items():
        difference = f"{one['mean']:+.2f} {_span((one['low'], one['high']))}"
        this = f"{row['metrics'][name]['value']:.2f}"
        table.add_row(
            name,
            f"{one['other']:.2f}",
            this,
            difference,
            f"{one['p_queries']:.4f}",
            f"{one['p_classes']:.4f}",
        )
    console.print(table)


def _show_worst(console: Console, row: dict[str, Any]) -> None:
    worst = row["worst_classes"]
    metrics = [name for name in row["metrics"] if name in ("R@1", "RP", "MAP@R")]
    title = escape(f"worst classes of {row['file']}")
    table = Table(
        "class", "queries", *metrics, "example", "its nearest", "of class", title=title, title_justify="left"
    )
    for one in worst:
        cells = [f"{one[name]:.1f}" for name in metrics]
        names = (escape(one[key]) for key in ("example", "nearest", "nearest_class"))
        table.add_row(escape(one["class"]), str(one["queries"]), *cells, *names)
    console.print(table)


def _title(row: dict[str, Any]) -> str:
    told = f"{row['queries']} queries of {row['classes']} classes, gallery: {row['gallery']}"
    return escape(f"{row['file']}: {told}")


def _span(pair: Sequence[float]) -> str:
    return f"[{pair[0]:.2f}, {pair[1]:.2f}]".replace("[", r"\[")
