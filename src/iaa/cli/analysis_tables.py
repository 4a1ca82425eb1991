"""Results of analyses as tables and notes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iaa.cli.output import Output, ResultTable
from iaa.presets.paper_tables import paper_correlations

if TYPE_CHECKING:
    from iaa.analysis.atlas import Atlas
    from iaa.analysis.correlation import Correlation
    from iaa.analysis.cost import Cost
    from iaa.analysis.covariance_spread import Variety, Weights
    from iaa.analysis.pair_similarity import Similarity
    from iaa.analysis.training_log import Mining

PRINTED = 20
"""Rows of a long table that are printed."""
METRICS = {
    (True, False): "squared means, variances",
    (False, False): "means, variances",
    (True, True): "squared means, deviations",
    (False, True): "means, deviations",
}


def correlation(result: "Correlation", title: str, data: str) -> Output:
    """The coefficients as in Table VIII, the paper's for the same dataset below each, and the verdict."""
    from iaa.analysis.correlation import PAIRS, POWERS

    rows: list[list[object]] = []
    paper = paper_correlations(data)
    for pair in PAIRS:
        rows.append([METRICS[pair], *(result.value(p=p, squared=pair[0], root=pair[1]) for p in POWERS)])
        for name, table in paper.items():
            if pair in table:
                rows.append([f"    paper, {name}", *(table[pair].get(p) for p in POWERS)])
    columns = {"distances of": "", **{f"p = {p}": ".3f" for p in POWERS}}
    coefficients = ResultTable("correlation", f"Spearman coefficient; {title}", columns, rows)
    points = [
        [curve.name, position, mean, cov]
        for curve in (result.average, *result.examples)
        for position, mean, cov in zip(curve.position, curve.mean_distance, curve.cov_distance, strict=True)
    ]
    columns = dict.fromkeys(("class", "position", "mean distance", "covariance distance"), "")
    curves = ResultTable("curves", "", columns, points, printed=0)
    notes = [result.verdict.text, *result.verdict.rests_on]
    if result.left_out:
        notes.append(
            f"{result.left_out:,} classes with fewer than {result.min_samples} samples are left out."
        )
    if result.compared < result.classes:
        notes.append(f"Ranked: an even sample of {result.compared:,} classes.")
    if paper:
        notes.append("The paper's features are those of a GoogLeNet trained on each dataset (Table VIII).")
    return Output([coefficients, curves], notes)


def variety(result: "Variety", title: str, names: dict[int, str]) -> Output:
    """The classes farthest from the global covariance first."""
    classes = zip(result.labels, result.count, result.distance, result.expected, strict=True)
    rows = [[label, names.get(label, str(label)), *numbers] for label, *numbers in classes]
    rows.sort(key=lambda row: -float(str(row[3])))
    columns = {"label": "", "class": "", "samples": "", "distance": ".3f", "by sampling alone": ".3f"}
    notes = [
        "Distance of a class's variances from the global ones, divided by the norm of the global ones. By "
        "sampling alone: what a class of this size would show if its true variances were the global ones "
        "(normal data).",
        f"{100 * result.beyond:.0f} % of {len(rows):,} classes are farther away than that.",
    ]
    notes += [f"{result.left_out:,} classes with a single sample are left out."] if result.left_out else []
    return Output([ResultTable("variety", title, columns, rows, PRINTED)], notes)


def weights(result: "Weights") -> Output:
    """A row per class size."""
    columns = {"n": "", **{f"β = {curve.falloff:g}": ".3f" for curve in result.curves}}
    rows = list(zip(result.count, *(curve.alpha for curve in result.curves), strict=True))
    return Output([ResultTable("weights", f"α by class size, τ = {result.few:g}", columns, rows)])


def similarity(results: Sequence["Similarity"]) -> Output:
    """A row per run; the histograms as a file."""
    columns = {"": "", "positive": ".3f", "±": ".3f", "negative": ".3f", "± ": ".3f", "overlap": ".3f"}
    columns |= {"d-prime": ".3f", "positive pairs": ",", "negative pairs": ","}
    rows = [
        [
            *(run.name, run.positive_mean, run.positive_deviation, run.negative_mean, run.negative_deviation),
            *(run.overlap, run.d_prime, run.positives, run.negatives),
        ]
        for run in results
    ]
    bins = [
        [run.name, low, high, positive, negative]
        for run in results
        for low, high, positive, negative in zip(
            run.edges, run.edges[1:], run.positive, run.negative, strict=False
        )
    ]
    bin_columns = dict.fromkeys(("name", "from", "to", "positive", "negative"), "")
    histogram = ResultTable("histograms", "", bin_columns, bins, printed=0)
    pairs = ResultTable("similarity", "cosine similarity of all pairs", columns, rows)
    notes = [
        "Overlap: area shared by the two histograms, 0 to 1. d-prime: distance of the means in deviations."
    ]
    return Output([pairs, histogram], notes)


def mining(results: Sequence["Mining"]) -> Output:
    """A row per run and epoch."""
    columns = {"run": "", "epoch": "", "negatives a step": ",.0f", "synthetic negatives": ".1%"}
    columns |= {"positives a step": ",.0f", "synthetic positives": ".1%", "loss": ".4f"}
    rows = []
    for run in results:
        negatives, positives = (
            (run.negatives, run.synthetic_negatives),
            (run.positives, run.synthetic_positives),
        )
        epochs = zip(run.epochs, *negatives, *positives, run.loss, strict=True)
        rows += [[run.name, *values] for values in epochs]
    notes = [f"{run.name}: its loss mines no pairs." for run in results if not run.chooses]
    title = "mined pairs, means over the steps of an epoch"
    return Output([ResultTable("mining", title, columns, rows)], notes)


def cost(result: "Cost") -> Output:
    """A row per number of copies."""
    columns = {"M": "", "ms a step": ".1f", "quartiles": "", "more time, %": "+.1f", "MiB": ".1f"}
    columns |= {"more memory, %": "+.1f"}
    rows = [
        [
            *(step.copies, step.milliseconds, f"{step.low:.1f} - {step.high:.1f}", step.more_time),
            *(step.mebibytes, step.more_memory),
        ]
        for step in result.steps
    ]
    notes = [
        f"Statistics: {result.statistics_seconds:.2f} s; the pass before them: {result.pass_seconds:.1f} s; "
        f"an epoch of steps with the most copies: {result.epoch_seconds:.1f} s.",
        f"Medians of {result.rounds} steps each, taking turns; percentages over the first row, those of time "
        "by the quickest step. Quartiles far apart mean that other programs kept the machine busy.",
        *result.what,
    ]
    return Output([ResultTable("cost", "cost of synthetics", columns, rows)], notes)


def atlas(result: "Atlas", title: str, printed: int) -> Output:
    """Classes with the most variance first on the screen, all in the file; then suspects."""
    columns = {"label": "", "class": "", "n": "", "variance": ".4g", "corrected": ".4g"}
    columns |= {"effective rank": ".1f", "α": ".2f", "moved": ".2f", "lenders": "", "extremes": ""}
    rows = [
        [
            *(row.label, row.name, row.count, row.total_variance, row.corrected_variance, row.effective_rank),
            *(row.alpha, row.moved),
            "; ".join(f"{lender.name} {100 * lender.share:.0f} %" for lender in row.lenders),
            "; ".join(f"{sample.id} {sample.distance:.1f}" for sample in row.extremes),
        ]
        for row in sorted(result.classes, key=lambda row: -row.total_variance)
    ]
    classes = ResultTable("atlas", title, columns, rows, printed, hidden=("extremes",))
    columns = {"id": "", "label": "", "class": "", "distance": ".2f", "explained by": "", "its label": ""}
    columns |= {"its distance": ".2f", "evidence": ".2f"}
    lines = [
        [
            *(sample.id, sample.label, sample.name, sample.distance),
            *(sample.other_name, sample.other_label, sample.other_distance, sample.evidence),
        ]
        for sample in result.suspects
    ]
    suspects = ResultTable("suspects", "likely mislabelled", columns, lines, printed)
    notes = [
        f"{result.suspected:,} of {result.samples:,} samples are explained better by another class than by "
        "their own without them. Distances in standard deviations, root mean square over dimensions; "
        "evidence is the log-likelihood ratio per dimension. Look before you relabel: classes overlap.",
    ]
    return Output([classes, suspects], notes)
