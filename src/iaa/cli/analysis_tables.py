"""Results of analyses as tables and sentences."""

from collections.abc import Sequence

from iaa.analysis.atlas import Atlas
from iaa.analysis.correlation import PAIRS, POWERS, Correlation
from iaa.analysis.cost import Cost
from iaa.analysis.covariance_spread import Variety, Weights
from iaa.analysis.mining import Mining
from iaa.analysis.pair_similarity import Similarity
from iaa.cli.output import Sheet, Shown
from iaa.presets.paper_correlations import paper_correlations

PRINTED = 20
"""Rows of a long table that are printed."""
METRICS = {
    (True, False): "squared means, variances",
    (False, False): "means, variances",
    (True, True): "squared means, deviations",
    (False, True): "means, deviations",
}


def correlation(found: Correlation, title: str, data: str) -> Shown:
    """The coefficients as in Table VIII, beside the paper's for the same dataset, and the verdict."""
    rows: list[list[object]] = []
    told = paper_correlations(data)
    for pair in PAIRS:
        rows.append([METRICS[pair], *(found.value(p=p, squared=pair[0], root=pair[1]) for p in POWERS)])
        for name, table in told.items():
            if pair in table:
                rows.append([f"    paper, {name}", *(table[pair].get(p) for p in POWERS)])
    head = ["distances of", *(f"p = {p}" for p in POWERS)]
    formats = dict.fromkeys(head[1:], ".3f")
    sheet = Sheet("correlation", f"Spearman coefficient; {title}", head, rows, formats=formats)
    curve = [found.average, *found.examples]
    points = [
        [one.name, place, mean, cov]
        for one in curve
        for place, mean, cov in zip(one.position, one.mean_distance, one.cov_distance, strict=True)
    ]
    curves = Sheet(
        "curves", "", ["class", "position", "mean distance", "covariance distance"], points, printed=0
    )
    sampled = (
        [f"Ranked: an even sample of {found.compared:,} classes."] if found.compared < found.classes else []
    )
    out = [f"{found.left_out:,} classes with fewer than {found.min_samples} samples are left out."]
    words = [found.verdict.text, *found.verdict.rests_on, *(out if found.left_out else []), *sampled]
    if told:
        words.append("The paper's features are those of a GoogLeNet trained on each dataset (Table VIII).")
    return Shown([sheet, curves], words)


def variety(found: Variety, title: str, names: dict[int, str]) -> Shown:
    """The classes farthest from the global covariance first."""
    columns = zip(found.labels, found.count, found.distance, found.expected, strict=True)
    rows = [[label, names.get(label, str(label)), *numbers] for label, *numbers in columns]
    rows.sort(key=lambda row: -float(str(row[3])))
    head = ["label", "class", "samples", "distance", "by sampling alone"]
    formats = {"distance": ".3f", "by sampling alone": ".3f"}
    words = [
        "Distance of a class's variances from the global ones, over the length of these. By sampling alone: "
        "what a class of this size would show if its true variances were the global ones (normal data).",
        f"{100 * found.beyond:.0f} % of {len(rows):,} classes are farther than that.",
    ]
    words += [f"{found.left_out:,} classes with a single sample are left out."] if found.left_out else []
    return Shown([Sheet("variety", title, head, rows, PRINTED, formats)], words)


def weights(found: Weights) -> Shown:
    """A row per class size."""
    head = ["n", *(f"β = {curve.falloff:g}" for curve in found.curves)]
    rows = list(zip(found.count, *(curve.alpha for curve in found.curves), strict=True))
    formats = dict.fromkeys(head[1:], ".3f")
    return Shown([Sheet("weights", f"α by class size, τ = {found.few:g}", head, rows, formats=formats)])


def similarity(found: Sequence[Similarity]) -> Shown:
    """A row per run; the histograms as a file."""
    head = ["", "positive", "±", "negative", "± ", "overlap", "d-prime", "positive pairs", "negative pairs"]
    rows = [
        [
            *(one.name, one.positive_mean, one.positive_deviation, one.negative_mean, one.negative_deviation),
            *(one.overlap, one.d_prime, one.positives, one.negatives),
        ]
        for one in found
    ]
    formats = dict.fromkeys(head[1:7], ".3f") | {"positive pairs": ",", "negative pairs": ","}
    bins = [
        [one.name, low, high, positive, negative]
        for one in found
        for low, high, positive, negative in zip(
            one.edges, one.edges[1:], one.positive, one.negative, strict=False
        )
    ]
    histogram = Sheet("histograms", "", ["name", "from", "to", "positive", "negative"], bins, printed=0)
    words = ["Overlap: area that the two histograms share, 0 to 1. d-prime: gap of the means in deviations."]
    return Shown(
        [Sheet("similarity", "cosine similarity of all pairs", head, rows, None, formats), histogram], words
    )


def mining(found: Sequence[Mining]) -> Shown:
    """A row per run and epoch."""
    head = [
        "run",
        "epoch",
        "negatives a step",
        "synthetic negatives",
        "positives a step",
        "synthetic positives",
        "loss",
    ]
    rows = [
        [one.name, *values]
        for one in found
        for values in zip(
            *(
                one.epochs,
                one.negatives,
                one.synthetic_negatives,
                one.positives,
                one.synthetic_positives,
                one.loss,
            ),
            strict=True,
        )
    ]
    formats = {"negatives a step": ",.0f", "positives a step": ",.0f", "loss": ".4f"}
    formats |= {"synthetic negatives": ".1%", "synthetic positives": ".1%"}
    words = [f"{one.name}: its loss chooses no pairs." for one in found if not one.chooses]
    if any(value is None for one in found for value in one.negatives):
        words.append("A dash: the log is of a run that did not write how many pairs were chosen.")
    return Shown(
        [Sheet("mining", "what mining chose, means over the steps of an epoch", head, rows, None, formats)],
        words,
    )


def cost(found: Cost) -> Shown:
    """A row per number of copies."""
    head = ["M", "ms a step", "quartiles", "more time, %", "MiB", "more memory, %"]
    rows = [
        [
            one.copies,
            one.milliseconds,
            f"{one.low:.1f} - {one.high:.1f}",
            one.more_time,
            one.mebibytes,
            one.more_memory,
        ]
        for one in found.steps
    ]
    formats = {"ms a step": ".1f", "MiB": ".1f"}
    formats |= {"more time, %": "+.1f", "more memory, %": "+.1f"}
    words = [
        f"Statistics: {found.statistics_seconds:.2f} s; the pass before them: {found.pass_seconds:.1f} s; "
        f"an epoch of steps with the most copies: {found.epoch_seconds:.1f} s.",
        f"Medians of {found.rounds} steps each, taking turns; percent over the first row, of time by "
        "the quickest step. Where quartiles lie far apart, other programs kept the machine busy.",
        *found.what,
    ]
    return Shown([Sheet("cost", "cost of synthetics", head, rows, None, formats)], words)


def atlas(found: Atlas, title: str, printed: int) -> Shown:
    """Classes with the most variance first on the screen; all in the file; then suspects."""
    head = [
        "label",
        "class",
        "n",
        "variance",
        "corrected",
        "effective rank",
        "α",
        "moved",
        "lenders",
        "extremes",
    ]
    rows = [
        [
            *(one.label, one.name, one.count, one.total_variance, one.corrected_variance, one.effective_rank),
            *(one.alpha, one.moved),
            "; ".join(f"{lender.name} {100 * lender.share:.0f} %" for lender in one.lenders),
            "; ".join(f"{sample.id} {sample.distance:.1f}" for sample in one.extremes),
        ]
        for one in sorted(found.classes, key=lambda one: -one.total_variance)
    ]
    formats = {"variance": ".4g", "corrected": ".4g", "effective rank": ".1f", "α": ".2f", "moved": ".2f"}
    classes = Sheet("atlas", title, head, rows, printed, formats, hidden=("extremes",))
    told = ["id", "label", "class", "distance", "explained by", "its label", "its distance", "evidence"]
    lines = [
        [
            one.id,
            one.label,
            one.name,
            one.distance,
            one.other_name,
            one.other_label,
            one.other_distance,
            one.evidence,
        ]
        for one in found.suspects
    ]
    formats = dict.fromkeys(("distance", "its distance", "evidence"), ".2f")
    suspects = Sheet("suspects", "likely mislabelled", told, lines, printed, formats)
    words = [
        f"{found.suspected:,} of {found.samples:,} samples are explained better by another class than by "
        "their own without them. Distances in standard deviations, root mean square over dimensions; "
        "evidence is the log-likelihood ratio per dimension. Worth a look, no more: classes overlap.",
    ]
    return Shown([classes, suspects], words)
