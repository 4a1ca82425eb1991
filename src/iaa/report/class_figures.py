"""Figures of how classes are distributed: correlation, variety, weight of the correction, similarities."""

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
"""Classes drawn at most, evenly along their order."""


def correlation(
    result: Correlation, path: str | Path | None = None, *, curves: Sequence[Curve] = ()
) -> Figure:
    """Fig. 3 and 4: distances of means in descending order, of covariances along it.

    A panel for each of ``curves``: if none are given, the average and the example classes.
    """
    shown = list(curves) or [result.average, *result.examples]
    with panels(len(shown), width=2.9 if len(shown) > 1 else 4.6) as (figure, every):
        for axes, curve in zip(every, shown, strict=True):
            place = [100 * at for at in curve.position]
            axes.plot(place, curve.cov_distance, color=SERIES[1], linewidth=0.8, label="covariances")
            axes.plot(place, curve.mean_distance, color=SERIES[0], linewidth=1.8, label="means")
            if len(shown) > 1:
                axes.set_title(_about(curve), fontsize=9, color=INK, loc="left")
            axes.set(xlabel="classes, far to near, %", ylim=(-0.03, 1.03))
        every[0].set_ylabel("distance, scaled")
        legend(every[0], loc="best")
    alt = (
        f"Distances of class means in descending order, and of covariances along them; the mean Spearman "
        f"coefficient over {result.classes} classes is {result.value():.2f}."
    )
    words = "Falling together means that classes with similar means vary alike."
    title = "Means and covariances" if len(shown) > 1 else _about(shown[0])
    name = "correlation" if shown[0].label is None else f"correlation-{shown[0].label}"
    return Figure(name, figure, title, alt, words).saved(path)


def variety(result: Variety, path: str | Path | None = None) -> Figure:
    """Fig. 5: how far every class covariance is from the global one, beside what chance would give."""
    every = sorted(range(len(result.labels)), key=lambda place: -result.distance[place])
    step = max(1, len(every) // POINTS)
    order, place = every[::step], range(1, len(every) + 1, step)
    with panels() as (figure, (axes,)):
        chance = [result.expected[at] for at in order]
        axes.plot(place, chance, ".", ms=2, color=SERIES[5], label="by chance alone")
        axes.plot(place, [result.distance[at] for at in order], color=RIGHT, label="found")
        axes.set(xlabel="classes, farthest first", ylabel="distance to the global", ylim=(0, None))
        legend(axes)
    share = 100 * result.beyond
    alt = f"Distance of class covariances to the global one: {share:.0f} % of the classes lie beyond chance."
    words = (
        f"Over the length of the global covariance. {share:.0f} % of {len(result.labels):,} classes are "
        "farther away than sampling alone explains."
    )
    if result.left_out:
        words += f" {result.left_out:,} classes of one sample are left out."
    return Figure("variety", figure, "Classes vary in their own ways", alt, words).saved(path)


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
    words = f"A class of more than {result.few:g} samples borrows nothing (Eq. 16)."
    return Figure("weights", figure, "How much a class borrows", alt, words).saved(path)


def similarity(results: Sequence[Similarity], path: str | Path | None = None) -> Figure:
    """Fig. 12: similarities of positive and of negative pairs, a panel for each run."""
    low = min(one.edges[0] for one in results)
    high = max(one.edges[-1] for one in results)
    with panels(len(results), height=2.7) as (figure, every):
        for axes, one in zip(every, results, strict=True):
            for shares, colour, what in (
                (one.negative, WRONG, "negative"),
                (one.positive, RIGHT, "positive"),
            ):
                percent = [100 * share for share in shares]
                axes.stairs(percent, one.edges, fill=True, color=colour, alpha=0.28, linewidth=0)
                axes.stairs(percent, one.edges, color=colour, linewidth=1.2, label=f"{what} pairs")
            axes.set(xlabel="cosine similarity", xlim=(low, high))
            if len(results) > 1:
                axes.set_title(label_text(one.name), fontsize=9, color=MUTED, loc="left")
        every[0].set_ylabel("share of pairs, %")
        legend(every[0], loc="best")
    told = "; ".join(f"{_of(one, results)}overlap {one.overlap:.2f}, d′ {one.d_prime:.2f}" for one in results)
    alt = f"Histograms of the similarities of positive and negative pairs: {told}."
    words = f"All pairs, each kind adding up to 100 %; {told}."
    return Figure("similarity", figure, "Pairs apart", alt, words).saved(path)


def _about(curve: Curve) -> str:
    who = "Average over classes" if curve.label is None else curve.name
    return f"{label_text(who, 24)}: {round(curve.coefficient, 2) + 0.0:.2f}"


def _of(one: Similarity, results: Sequence[Similarity]) -> str:
    return f"{one.name}: " if one.name and len(results) > 1 else ""
