"""``iaa analyze``: the paper's analyses of an embeddings file or a run, as tables, CSV, JSON and figures."""

from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from iaa.analysis import atlas as atlases
from iaa.analysis import correlation as correlations
from iaa.analysis import covariance_spread as varieties
from iaa.analysis import mining as minings
from iaa.analysis import pair_similarity as similarities
from iaa.cli import analysis_tables as tables
from iaa.cli.cmd_analyze_decode import command as decode
from iaa.cli.output import FigureFile, finish
from iaa.method.gaussians import estimate
from iaa.progress import progress
from iaa.report.analysis_input import Input, Split, read_input

Source = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="INPUT")]
Runs = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Inputs = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="INPUT")]


def correlation(
    source: Source,
    split: Split = "auto",
    min_samples: int = 2,
    draws: int = 999,
    seed: int = 0,
    out: Path | None = None,
    figure: FigureFile = None,
    json: bool = False,
) -> int:
    """Do similar means go with similar covariances? Tables I and VIII, Fig. 3 and 4, and a verdict.

    Spearman coefficients for p = 1 to 4 and four pairs of metrics, what chance gives when covariances are
    dealt out to classes at random, and whether borrowed variances are nearer to samples held out.

    Args:
        source: An embeddings file or a run.
        split: Which classes; auto is those of training, where there are any.
        min_samples: Only classes with so many samples or more.
        draws: Random permutations.
        seed: Of permutations and held-out halves.
        out: Directory for correlation.md, .csv and .json, and curves.csv.
        figure: Draw the curves to this file (.svg, .png).
        json: Print JSON instead of tables.
    """
    given = read_input(source, split)
    with progress("correlation") as tick:
        found = correlations.correlation(
            given.data.z.float(),
            given.data.labels,
            names=given.data.class_names,
            min_samples=min_samples,
            draws=draws,
            seed=seed,
            tick=tick,
            **given.correction,
        )
    return finish(
        "correlation",
        found,
        tables.correlation(found, given.title, given.dataset),
        out=out,
        figure=figure,
        json=json,
    )


def variety(
    source: Source,
    split: Split = "auto",
    out: Path | None = None,
    figure: FigureFile = None,
    json: bool = False,
) -> int:
    """How far is every class's covariance from the global one? Fig. 5, beside what sampling alone gives.

    Args:
        source: An embeddings file or a run.
        split: Which classes; auto is those of training, where there are any.
        out: Directory for variety.md, .csv and .json.
        figure: Draw it to this file (.svg, .png).
        json: Print JSON instead of tables.
    """
    given = read_input(source, split)
    known, inverse = given.data.labels.unique(return_inverse=True)
    stats = estimate(given.data.z.float(), inverse, num_classes=len(known))
    found = varieties.variety(stats, labels=known.tolist())
    shown = tables.variety(found, given.title, given.data.class_names or {})
    return finish("variety", found, shown, out=out, figure=figure, json=json)


def weights(
    falloffs: tuple[float, ...] = (0.01, 0.05, 0.1, 0.5, 1.0),
    few: float = 40,
    most: int = 60,
    out: Path | None = None,
    figure: FigureFile = None,
    json: bool = False,
) -> int:
    """How much does a class of n samples borrow? alpha over n for several beta: Eq. 16, Fig. 9a.

    Args:
        falloffs: Values of beta.
        few: Classes of more samples borrow nothing (tau).
        most: Largest n.
        out: Directory for weights.md, .csv and .json.
        figure: Draw the curves to this file (.svg, .png).
        json: Print JSON instead of a table.
    """
    found = varieties.weights(falloffs=falloffs, few=few, most=most)
    return finish("weights", found, tables.weights(found), out=out, figure=figure, json=json)


def similarity(
    sources: Inputs,
    split: Split = "auto",
    bins: int = 100,
    out: Path | None = None,
    figure: FigureFile = None,
    json: bool = False,
) -> int:
    """How far apart are positive and negative pairs? Histograms, overlap and d-prime of all pairs: Fig. 12.

    Args:
        sources: Embeddings files or runs, side by side.
        split: Which classes; auto is those of testing, where there are any.
        bins: Of the histograms, between a cosine of -1 and 1.
        out: Directory for similarity.md, .csv and .json, and histograms.csv.
        figure: Draw the histograms to this file (.svg, .png).
        json: Print JSON instead of a table.
    """
    found = []
    for path in _some(sources):
        given = read_input(path, split, otherwise="test")
        with progress(f"pairs of {given.name}") as tick:
            one = similarities.similarity(
                given.data.z, given.data.labels, name=given.name, bins=bins, tick=tick
            )
        found.append(one)
    return finish("similarity", found, tables.similarity(found), out=out, figure=figure, json=json)


def mining(runs: Runs, out: Path | None = None, figure: FigureFile = None, json: bool = False) -> int:
    """What did mining choose while training, and how much of it was synthetic? From the logs: Fig. 10.

    Args:
        runs: Run directories, side by side.
        out: Directory for mining.md, .csv and .json.
        figure: Draw the curves to this file (.svg, .png).
        json: Print JSON instead of a table.
    """
    found = [minings.mining(run) for run in _some(runs)]
    return finish("mining", found, tables.mining(found), out=out, figure=figure, json=json)


def cost(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    copies: tuple[int, ...] = (0, 1, 2, 3, 4, 5),
    rounds: int = 15,
    out: Path | None = None,
    figure: FigureFile = None,
    json: bool = False,
) -> int:
    """What do synthetics cost? Time and memory of real steps for M = 0 to 5, and of the statistics: Fig. 11.

    Args:
        run: A run directory: its data, network, loss, batch and optimiser are used; it is not changed.
        copies: Numbers of synthetics; the first is what the others are compared with.
        rounds: Steps of each, taking turns.
        out: Directory for cost.md, .csv and .json.
        figure: Draw it to this file (.svg, .png).
        json: Print JSON instead of a table.
    """
    from iaa.memory import keep_freed_memory
    from iaa.training.step_cost import run_cost

    keep_freed_memory()  # as in training
    with progress("steps") as tick:
        found = run_cost(run, copies=copies, rounds=rounds, tick=tick)
    return finish("cost", found, tables.cost(found), out=out, figure=figure, json=json)


def atlas(
    source: Source,
    split: Split = "auto",
    lenders: int = 5,
    extremes: int = 3,
    suspects: int = 100,
    rows: int = 20,
    out: Path | None = None,
    json: bool = False,
) -> int:
    """What is every class like, who lends to it, which samples are extreme or likely mislabelled?

    Args:
        source: An embeddings file or a run, whose options of the correction are taken.
        split: Which classes; auto is those of training, where there are any.
        lenders: Neighbours named for a class.
        extremes: Samples named for a class.
        suspects: Likely mislabelled samples listed.
        rows: Rows printed of each table; the files hold all.
        out: Directory for atlas.md, .csv and .json, and suspects.csv.
        json: Print JSON instead of tables.
    """
    given = read_input(source, split)
    found = _atlas(given, lenders_shown=lenders, extremes_shown=extremes, suspects_shown=suspects)
    return finish("atlas", found, tables.atlas(found, given.title, rows), out=out, json=json)


def _atlas(given: Input, **shown: int) -> atlases.Atlas:
    data = given.data
    with progress("atlas") as tick, torch.no_grad():
        return atlases.atlas(
            data.z.float(),
            data.labels,
            ids=data.ids,
            names=data.class_names,
            tick=tick,
            **shown,
            **given.correction,
        )


def _some(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    if not paths:
        raise ValueError("name at least one file or run")
    return paths


command: dict[str, Any] = {
    "correlation": correlation,
    "variety": variety,
    "weights": weights,
    "similarity": similarity,
    "mining": mining,
    "cost": cost,
    "atlas": atlas,
    "decode": decode,
}
