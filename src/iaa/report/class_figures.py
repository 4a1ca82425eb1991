"""Figures about classes: correlation, variety, weight of the correction, similarities of pairs."""

from collections.abc import Sequence
from pathlib import Path

from iaa.analysis.correlation import Correlation, Curve
from iaa.analysis.covariance_spread import Variety, Weights
from iaa.analysis.pair_similarity import Similarity
from iaa.report.figure_style import (
    INK,
    MUTED,
    RIGHT,
    SERIES,
    WRONG,
    Figure,
    cycle,
    label_text,
    legend,
    panels,
)

POINTS = 500
"""Most classes drawn, evenly along their order."""


def correlation(
    result: Correlation, path: str | Path | None = None, *, curves: Sequence[Curve] = ()
) -> Figure:
    """Fig. 3 and 4: distances of means in descending order, of covariances along it.

    A panel for each of ``curves``: if none are given, the average and the example classes.
    """
    shown = list(curves) or [result.average, *result.examples]
    with panels(len(shown), width=2.9 if len(shown) > 1 else 4.6) as (figure, every):
        for axes, curve in zip(every, shown, strict=True):
            positions = [100 * position for position in curve.position]
            axes.plot(positions, curve.cov_distance, color=SERIES[1], linewidth=0.8, label="covariances")
            axes.plot(positions, curve.mean_distance, color=SERIES[0], linewidth=1.8, label="means")
            if len(shown) > 1:
                axes.set_title(_about(curve), fontsize=9, color=INK, loc="left")
            axes.set(xlabel="classes, far to near, %", ylim=(-0.03, 1.03))
        every[0].set_ylabel("distance, scaled")
        legend(every[0], loc="best")
    alt = (
        f"Distances of class means in descending order, and of covariances along them; the mean Spearman "
        f"coefficient over {result.classes} classes is {result.value():.2f}."
    )
    caption = "If both fall together, classes with similar means vary in similar ways."
    title = "Means and covariances" if len(shown) > 1 else _about(shown[0])
    name = "correlation" if shown[0].label is None else f"correlation-{shown[0].label}"
    return Figure(name, figure, title, alt, caption).saved(path)


def variety(result: Variety, path: str | Path | None = None) -> Figure:
    """Fig. 5: how far every class covariance is from the global one, and what chance would give."""
    by_distance = sorted(range(len(result.labels)), key=lambda row: -result.distance[row])
    step = max(1, len(by_distance) // POINTS)
    order, ranks = by_distance[::step], range(1, len(by_distance) + 1, step)
    with panels() as (figure, (axes,)):
        chance = [result.expected[row] for row in order]
        axes.plot(ranks, chance, ".", ms=2, color=SERIES[5], label="by chance alone")
        axes.plot(ranks, [result.distance[row] for row in order], color=RIGHT, label="measured")
        axes.set(xlabel="classes, farthest first", ylabel="distance to the global", ylim=(0, None))
        legend(axes)
    share = 100 * result.beyond
    alt = f"Distance of class covariances to the global one: {share:.0f} % of the classes lie beyond chance."
    caption = (
        f"Divided by the norm of the global covariance. {share:.0f} % of {len(result.labels):,} classes are "
        "farther away than sampling alone explains."
    )
    if result.left_out:
        caption += f" {result.left_out:,} classes of one sample are left out."
    return Figure("variety", figure, "Classes vary in their own ways", alt, caption).saved(path)


def weights(result: Weights, path: str | Path | None = None) -> Figure:
    """Fig. 9a: how much a class borrows by its size, for several falloffs."""
    with panels() as (figure, (axes,)):
        for curve, colour in zip(result.curves, cycle(len(result.curves)), strict=True):
            axes.plot(
                result.count, curve.alpha, color=colour, drawstyle="steps-mid", label=f"β = {curve.falloff:g}"
            )
        axes.set(xlabel="samples of a class (n)", ylabel="share borrowed (α)", ylim=(0, 1.03), xlim=(1, None))
        legend(axes)
    alt = (
        f"Weight of the correction over class size for {len(result.curves)} falloffs, 0 above {result.few:g}."
    )
    caption = f"A class of more than {result.few:g} samples borrows nothing (Eq. 16)."
    return Figure("weights", figure, "How much a class borrows", alt, caption).saved(path)


def similarity(results: Sequence[Similarity], path: str | Path | None = None) -> Figure:
    """Fig. 12: similarities of positive and of negative pairs, a panel for each run."""
    low = min(run.edges[0] for run in results)
    high = max(run.edges[-1] for run in results)
    with panels(len(results), height=2.7) as (figure, every):
        for axes, run in zip(every, results, strict=True):
            for shares, colour, kind in (
                (run.negative, WRONG, "negative"),
                (run.positive, RIGHT, "positive"),
            ):
                percent = [100 * share for share in shares]
                axes.stairs(percent, run.edges, fill=True, color=colour, alpha=0.28, linewidth=0)
                axes.stairs(percent, run.edges, color=colour, linewidth=1.2, label=f"{kind} pairs")
            axes.set(xlabel="cosine similarity", xlim=(low, high))
            if len(results) > 1:
                axes.set_title(label_text(run.name), fontsize=9, color=MUTED, loc="left")
        every[0].set_ylabel("share of pairs, %")
        legend(every[0], loc="best")
    owners = [f"{run.name}: " if run.name and len(results) > 1 else "" for run in results]
    numbers = "; ".join(
        f"{owner}overlap {run.overlap:.2f}, d′ {run.d_prime:.2f}"
        for owner, run in zip(owners, results, strict=True)
    )
    alt = f"Histograms of the similarities of positive and negative pairs: {numbers}."
    caption = f"All pairs, each kind adding up to 100 %; {numbers}."
    return Figure("similarity", figure, "Positive and negative pairs", alt, caption).saved(path)


def _about(curve: Curve) -> str:
    name = "Average over classes" if curve.label is None else curve.name
    return f"{label_text(name, 24)}: {round(curve.coefficient, 2) + 0.0:.2f}"
