"""``iaa analyze``: the paper's analyses of an embeddings file or a run, as tables, CSV, JSON and figures."""

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from iaa.cli import analysis_tables as tables
from iaa.cli.cmd_analyze_decode import command as decode
from iaa.cli.output import TO_TERMINAL, OutputGroup, TableOptions, finish
from iaa.cli.run_paths import check_paths
from iaa.progress import progress
from iaa.report.analysis_input import AnalysisInput, Split, read_input

Source = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="INPUT")]
Runs = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Inputs = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="INPUT")]


def correlation(
    source: Source,
    split: Split = "auto",
    min_samples: int = 2,
    draws: int = 999,
    seed: int = 0,
    output: OutputGroup = TO_TERMINAL,
) -> int:
    """Do similar means go with similar covariances? Tables I and VIII, Fig. 3 and 4, and a verdict.

    Spearman coefficients for p = 1 to 4 and four pairs of metrics, what chance gives when covariances are
    assigned to classes at random, and whether borrowed variances are closer to held-out samples.

    Args:
        source: An embeddings file or a run.
        split: Which classes; auto takes the training classes, where there are any.
        min_samples: Only classes with at least this many samples.
        draws: Random permutations.
        seed: Seed of permutations and held-out halves.
        output: Where results go.
    """
    from iaa.analysis.correlation import correlation as analyze

    analysed = _read(source, split)
    with progress("correlation") as tick:
        result = analyze(
            analysed.data.z.float(),
            analysed.data.labels,
            names=analysed.data.class_names,
            min_samples=min_samples,
            draws=draws,
            seed=seed,
            tick=tick,
            **analysed.correction,
        )
    return finish("correlation", result, tables.correlation(result, analysed.title, analysed.dataset), output)


def variety(source: Source, split: Split = "auto", output: OutputGroup = TO_TERMINAL) -> int:
    """How far is every class's covariance from the global one? Fig. 5, with what sampling alone gives.

    Args:
        source: An embeddings file or a run.
        split: Which classes; auto takes the training classes, where there are any.
        output: Where results go.
    """
    from iaa.analysis.covariance_spread import variety as analyze
    from iaa.method.gaussians import estimate

    analysed = _read(source, split)
    known, inverse = analysed.data.labels.unique(return_inverse=True)
    stats = estimate(analysed.data.z.float(), inverse, num_classes=len(known))
    result = analyze(stats, labels=known.tolist())
    names = analysed.data.class_names or {}
    return finish("variety", result, tables.variety(result, analysed.title, names), output)


def weights(
    falloffs: tuple[float, ...] = (0.01, 0.05, 0.1, 0.5, 1.0),
    few: float = 40,
    most: int = 60,
    output: OutputGroup = TO_TERMINAL,
) -> int:
    """How much does a class of n samples borrow? alpha over n for several beta: Eq. 16, Fig. 9a.

    Args:
        falloffs: Values of beta.
        few: Classes with more samples borrow nothing (tau).
        most: Largest n.
        output: Where results go.
    """
    from iaa.analysis.covariance_spread import weights as analyze

    result = analyze(falloffs=falloffs, few=few, most=most)
    return finish("weights", result, tables.weights(result), output)


def similarity(
    sources: Inputs,
    split: Split = "auto",
    bins: int = 100,
    output: OutputGroup = TO_TERMINAL,
) -> int:
    """How far apart are positive and negative pairs? Histograms, overlap and d-prime of all pairs: Fig. 12.

    Args:
        sources: Embeddings files or runs, compared.
        split: Which classes; auto takes the test classes, where there are any.
        bins: Bins of the histograms, between a cosine of -1 and 1.
        output: Where results go.
    """
    from iaa.analysis.pair_similarity import similarity as analyze

    results = []
    for path in _at_least_one(sources):
        analysed = _read(path, split, otherwise="test")
        with progress(f"pairs of {analysed.name}") as tick:
            results.append(
                analyze(analysed.data.z, analysed.data.labels, name=analysed.name, bins=bins, tick=tick)
            )
    return finish("similarity", results, tables.similarity(results), output)


def mining(runs: Runs, output: OutputGroup = TO_TERMINAL) -> int:
    """Which pairs did mining choose in training, and how many were synthetic? From the logs: Fig. 10.

    Args:
        runs: Run directories, compared.
        output: Where results go.
    """
    from iaa.analysis.training_log import mining as analyze

    results = [analyze(run) for run in _at_least_one(runs)]
    return finish("mining", results, tables.mining(results), output)


def cost(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    copies: tuple[int, ...] = (0, 1, 2, 3, 4, 5),
    rounds: int = 15,
    output: OutputGroup = TO_TERMINAL,
) -> int:
    """What do synthetics cost? Time and memory of real steps for M = 0 to 5, and of the statistics: Fig. 11.

    Args:
        run: A run directory, which is not changed: its data, network, loss, batch and optimiser are used.
        copies: Numbers of synthetics; the others are compared with the first.
        rounds: Steps of each, taking turns.
        output: Where results go.
    """
    check_paths(run)
    from iaa.allocator import keep_freed_memory
    from iaa.training.step_cost import run_cost

    keep_freed_memory()  # as in training
    with progress("steps") as tick:
        result = run_cost(run, copies=copies, rounds=rounds, tick=tick)
    return finish("cost", result, tables.cost(result), output)


def atlas(
    source: Source,
    split: Split = "auto",
    lenders: int = 5,
    extremes: int = 3,
    suspects: int = 100,
    rows: int = 20,
    output: Annotated[TableOptions, tyro.conf.arg(name="")] = TO_TERMINAL,
) -> int:
    """What is every class like, who lends to it, which samples are extreme or likely mislabelled?

    Args:
        source: An embeddings file, or a run with its own correction options.
        split: Which classes; auto takes the training classes, where there are any.
        lenders: Lenders listed per class.
        extremes: Extreme samples listed per class.
        suspects: Likely mislabelled samples listed.
        rows: Rows printed of each table; the files hold all of them.
        output: Where results go.
    """
    from iaa.analysis.atlas import atlas as analyze

    analysed = _read(source, split)
    with progress("atlas") as tick:
        result = analyze(
            analysed.data.z.float(),
            analysed.data.labels,
            ids=analysed.data.ids,
            names=analysed.data.class_names,
            lenders_shown=lenders,
            extremes_shown=extremes,
            suspects_shown=suspects,
            tick=tick,
            **analysed.correction,
        )
    return finish("atlas", result, tables.atlas(result, analysed.title, rows), output)


def _read(path: Path, split: Split, otherwise: Literal["train", "test"] = "train") -> AnalysisInput:
    check_paths(path)
    return read_input(path, split, otherwise=otherwise)


def _at_least_one(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    if not paths:
        raise ValueError("name at least one file or run")
    check_paths(*paths)
    return paths


_ANALYSES = (correlation, variety, weights, similarity, mining, cost, atlas)
command: dict[str, Any] = {**{analysis.__name__: analysis for analysis in _ANALYSES}, "decode": decode}
