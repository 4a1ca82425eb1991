"""Every figure: a result in, a ``Figure`` out."""

from collections.abc import Sequence
from itertools import cycle

import torch

from iaa.analysis.correlation import Correlation, Curve
from iaa.analysis.cost import Cost
from iaa.analysis.covariance_spread import Variety, Weights
from iaa.analysis.experiments import Experiment
from iaa.analysis.pair_similarity import Similarity
from iaa.analysis.synthetics import Projection
from iaa.analysis.training_log import LogColumns, Mining
from iaa.report.figure_style import CLASSES, RIGHT, SERIES, WRONG, Figure, label_text, panels

POINTS = 500
"""Most classes drawn, evenly along their order."""


def correlation(result: Correlation, *, curves: Sequence[Curve] = ()) -> Figure:
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
                axes.set_title(_curve_title(curve))
            axes.set(xlabel="classes, far to near, %", ylim=(-0.03, 1.03))
        every[0].set_ylabel("distance, scaled")
        every[0].legend(loc="best")
    alt = (
        f"Distances of class means in descending order, and of covariances along them; the mean Spearman "
        f"coefficient over {result.classes} classes is {result.value():.2f}."
    )
    caption = "If both fall together, classes with similar means vary in similar ways."
    title = "Means and covariances" if len(shown) > 1 else _curve_title(shown[0])
    name = "correlation" if shown[0].label is None else f"correlation-{shown[0].label}"
    return Figure(name, figure, title, alt, caption)


def variety(result: Variety) -> Figure:
    """Fig. 5: how far every class covariance is from the global one, and what chance would give."""
    by_distance = sorted(range(len(result.labels)), key=lambda row: -result.distance[row])
    step = max(1, len(by_distance) // POINTS)
    order, ranks = by_distance[::step], range(1, len(by_distance) + 1, step)
    with panels() as (figure, (axes,)):
        chance = [result.expected[row] for row in order]
        axes.plot(ranks, chance, ".", ms=2, color=SERIES[5], label="by chance alone")
        axes.plot(ranks, [result.distance[row] for row in order], color=RIGHT, label="measured")
        axes.set(xlabel="classes, farthest first", ylabel="distance to the global", ylim=(0, None))
        axes.legend()
    share = 100 * result.beyond
    alt = f"Distance of class covariances to the global one: {share:.0f} % of the classes lie beyond chance."
    caption = (
        f"Divided by the norm of the global covariance. {share:.0f} % of {len(result.labels):,} classes are "
        "farther away than sampling alone explains."
    )
    if result.left_out:
        caption += f" {result.left_out:,} classes of one sample are left out."
    return Figure("variety", figure, "Classes vary in their own ways", alt, caption)


def weights(result: Weights) -> Figure:
    """Fig. 9a: how much a class borrows by its size, for several falloffs."""
    with panels() as (figure, (axes,)):
        for curve, colour in zip(result.curves, cycle(SERIES), strict=False):
            label = f"β = {curve.falloff:g}"
            axes.plot(result.count, curve.alpha, color=colour, drawstyle="steps-mid", label=label)
        axes.set(xlabel="samples of a class (n)", ylabel="share borrowed (α)", ylim=(0, 1.03), xlim=(1, None))
        axes.legend()
    alt = f"Weight of the correction by class size for {len(result.curves)} falloffs, 0 above {result.few:g}."
    caption = f"A class of more than {result.few:g} samples borrows nothing (Eq. 16)."
    return Figure("weights", figure, "How much a class borrows", alt, caption)


def similarity(results: Sequence[Similarity]) -> Figure:
    """Fig. 12: similarities of positive and of negative pairs, a panel for each run."""
    limits = min(run.edges[0] for run in results), max(run.edges[-1] for run in results)
    with panels(len(results), height=2.7) as (figure, every):
        for axes, run in zip(every, results, strict=True):
            kinds = ((run.negative, WRONG, "negative pairs"), (run.positive, RIGHT, "positive pairs"))
            for shares, colour, label in kinds:
                percent = [100 * share for share in shares]
                axes.stairs(percent, run.edges, fill=True, color=colour, alpha=0.28, linewidth=0)
                axes.stairs(percent, run.edges, color=colour, linewidth=1.2, label=label)
            axes.set(xlabel="cosine similarity", xlim=limits)
            if len(results) > 1:
                axes.set_title(label_text(run.name))
        every[0].set_ylabel("share of pairs, %")
        every[0].legend(loc="best")
    owners = [f"{run.name}: " if run.name and len(results) > 1 else "" for run in results]
    numbers = "; ".join(
        f"{owner}overlap {run.overlap:.2f}, d′ {run.d_prime:.2f}"
        for owner, run in zip(owners, results, strict=True)
    )
    alt = f"Histograms of the similarities of positive and negative pairs: {numbers}."
    caption = f"All pairs, each kind adding up to 100 %; {numbers}."
    return Figure("similarity", figure, "Positive and negative pairs", alt, caption)


def losses(logs: Sequence[LogColumns]) -> Figure:
    """The loss of every step, faint, and the mean over every epoch."""
    with panels() as (figure, (axes,)):
        for log, colour in zip(logs, cycle(SERIES), strict=False):
            axes.plot(log.step_epochs, log.step_losses, color=colour, alpha=0.25, linewidth=0.7)
            middles, marker = [epoch - 0.5 for epoch in log.epochs], _marker(log.epochs)
            axes.plot(middles, log.losses, color=colour, label=label_text(log.name), marker=marker)
        axes.set(xlabel="epoch", ylabel="loss", xlim=(0, None))
        axes.locator_params(axis="x", integer=True)
        if len(logs) > 1:
            axes.legend()
    ends = "; ".join(f"{log.name} from {log.losses[0]:.3g} to {log.losses[-1]:.3g}" for log in logs)
    caption = "Faint: single steps. Bold: mean over an epoch."
    return Figure("loss", figure, "Loss", f"Loss over epochs: {ends}.", caption)


def validation(logs: Sequence[LogColumns]) -> Figure:
    """Scores on the held-out training classes, epoch by epoch."""
    with panels() as (figure, (axes,)):
        for log, colour in zip(logs, cycle(SERIES), strict=False):
            for metric, style in (("MAP@R", "-"), ("R@1", "--")):
                points = {epoch: scores[metric] for epoch, scores in log.validation if metric in scores}
                label = label_text(f"{metric}, {log.name}" if len(logs) > 1 else metric, 40)
                marker = _marker([*points])
                axes.plot([*points], [*points.values()], style, color=colour, label=label, marker=marker)
        axes.set(xlabel="epoch", ylabel="percent", xlim=(0, None))
        axes.locator_params(axis="x", integer=True)
        axes.legend()
    last = "; ".join(f"{log.name} ends at MAP@R {log.validation[-1][1]['MAP@R']:.1f} %" for log in logs)
    caption = "Classes kept out of training; test classes are measured once, at the end."
    return Figure("validation", figure, "Held-out classes", f"Held-out scores: {last}.", caption)


def tsne(projection: Projection, names: dict[int, str], part: str, *, title: str = "") -> Figure:
    """Fig. 14: the originals, or the synthetics with their originals as rings; classes by colour."""
    labels = projection.labels.unique().tolist()
    everything = torch.cat([projection.originals, projection.synthetics.flatten(0, 1)])
    low, high = everything.amin(0), everything.amax(0)
    margin = (0.04 * (high - low)).where(high > low, 1)  # the same window for both parts
    x_limits, y_limits = torch.stack([low - margin, high + margin], 1).tolist()
    with panels(width=4.6, height=4.4) as (figure, (axes,)):
        for label, colour in zip(labels, cycle(CLASSES), strict=False):
            mine = projection.labels == label
            points, size = projection.originals[mine], 22
            if part == "synthetics":
                x, y = points.T.numpy()
                axes.scatter(x, y, s=9, facecolors="none", edgecolors=colour, linewidths=0.5)
                points, size = projection.synthetics[mine].flatten(0, 1), 9
            x, y = points.T.numpy()
            name = label_text(names.get(label, str(label)), 20)
            axes.scatter(x, y, s=size, color=colour, linewidths=0, alpha=0.85, label=name)
        axes.set(xticks=[], yticks=[], xlim=x_limits, ylim=y_limits)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        figure.legend(loc="outside lower center", ncols=3, fontsize=7.5, handletextpad=0.1)
    alt = f"t-SNE map of {part} of {len(labels)} classes; each class has its own colour."
    caption = f"{len(projection.rows)} samples of {len(labels)} classes drawn at random."
    if part == "synthetics":
        copies = projection.synthetics.shape[1]
        caption = f"{copies} around each sample, in the same map; rings are originals."
    return Figure(f"tsne-{part}", figure, title or part.capitalize(), alt, caption)


def mining(results: Sequence[Mining], *, parts: Sequence[str] = ("negatives", "shares")) -> Figure:
    """Fig. 10: mined hard negatives, and the share of synthetics among them."""
    with panels(len(parts)) as (figure, every):
        for axes, part in zip(every, parts, strict=True):
            for run, colour in zip(results, cycle(SERIES), strict=False):
                lines = {"negatives": run.negatives}
                if part == "shares":
                    lines = {"synthetics among negatives": run.synthetic_negatives}
                    lines |= {"synthetics among positives": run.synthetic_positives}
                for (name, values), style in zip(lines.items(), ("-", "--"), strict=False):
                    label = label_text(f"{name}, {run.name}" if len(results) > 1 else name, 48)
                    scaled = [value if part == "negatives" else 100 * value for value in values]
                    axes.plot(run.epochs, scaled, style, color=colour, label=label, marker=_marker(values))
            axes.set_ylabel("mined negatives a step" if part == "negatives" else "percent")
            axes.set(xlabel="epoch", xlim=(0, None), ylim=(0, None))
            axes.locator_params(axis="x", integer=True)
            if part == "shares" or len(results) > 1:
                axes.legend()
    last = "; ".join(f"{run.name} {100 * run.synthetic_negatives[-1]:.0f} %" for run in results)
    alt = f"Mining over epochs. Share of synthetics among the negatives in the last epoch: {last}."
    titles = {"negatives": "Hard negatives", "shares": "Synthetics among the mined pairs"}
    title = titles[parts[0]] if len(parts) == 1 else "Mined pairs"
    return Figure(_name("mining", parts), figure, title, alt, "Means over the steps of an epoch.")


def cost(result: Cost, *, parts: Sequence[str] = ("time", "memory")) -> Figure:
    """Fig. 11: time and memory of a step over the number of copies."""
    copies = [step.copies for step in result.steps]
    with panels(len(parts)) as (figure, every):
        for axes, part in zip(every, parts, strict=True):
            if part == "time":
                values = [step.milliseconds for step in result.steps]
                below = [abs(step.low - step.milliseconds) for step in result.steps]
                above = [abs(step.high - step.milliseconds) for step in result.steps]
                axes.errorbar(copies, values, yerr=[below, above], color=SERIES[0], marker="o")
            else:
                axes.plot(copies, [step.mebibytes for step in result.steps], color=SERIES[0], marker="o")
            axes.set(xlabel="copies (M)", ylim=(0, None), xticks=copies)
            axes.set_ylabel("milliseconds a step" if part == "time" else "MiB at most")
    last = result.steps[-1]
    more = f"{last.more_time:+.0f} % time and {last.more_memory:+.0f} % memory"
    alt = f"Cost of a training step over the number of copies: {last.copies} copies take {more}."
    caption = (
        f"Medians and quartiles of {result.rounds} rounds; "
        f"by quickest steps {last.copies} copies take {more}."
    )
    titles = {"time": "Time of a step", "memory": "Memory of a step"}
    title = titles[parts[0]] if len(parts) == 1 else "Cost of a training step"
    return Figure(_name("cost", parts), figure, title, alt, caption)


def ablation(result: Experiment) -> Figure:
    """R@1 of every arm over the seeds: lines along the axis if there is one, else a row per arm."""
    test = next(iter(result.rows[0].scores))
    scored = [(row, row.scores[test]["R@1"]) for row in result.rows]
    with panels(height=2.9 if result.axis else 0.6 + 0.3 * len(scored)) as (figure, (axes,)):
        all_series = list(dict.fromkeys(row.series for row, _ in scored))
        for series, colour in zip(all_series, cycle(SERIES), strict=False):
            mine = [(row, score) for row, score in scored if row.series == series]
            means = [score.mean for _, score in mine]
            spread = [score.deviation or 0.0 for _, score in mine]
            positions = [row.x for row, _ in mine if row.x is not None]
            if not result.axis:
                heights = [len(scored) - 1 - scored.index(pair) for pair in mine]
                axes.errorbar(means, heights, xerr=spread, color=colour, fmt="o")
            elif len(positions) == len(mine):
                label = label_text(series)
                axes.errorbar(positions, means, yerr=spread, color=colour, marker="o", label=label)
            else:
                for row, score in mine:
                    axes.axhline(score.mean, color=colour, linestyle="--", label=label_text(row.arm))
        if result.axis:
            axes.set(xlabel=result.axis, ylabel="R@1, %")
            axes.legend()
        else:
            axes.set_yticks(range(len(scored)), [label_text(row.arm) for row, _ in reversed(scored)])
            axes.set(xlabel="R@1, %")
    best, score = max(scored, key=lambda pair: pair[1].mean)
    alt = f"{result.title}: R@1 of {len(scored)} arms; {best.arm} is highest with {score.mean:.1f} %."
    several = f"Mean of {len(result.seeds)} seeds; bars are their standard deviation."
    caption = f"{result.source}. {several if len(result.seeds) > 1 else 'One seed.'}"
    return Figure(f"ablation-{result.name}", figure, result.title, alt, caption)


def _curve_title(curve: Curve) -> str:
    name = "Average over classes" if curve.label is None else curve.name
    return f"{label_text(name, 24)}: {round(curve.coefficient, 2) + 0.0:.2f}"


def _name(figure: str, parts: Sequence[str]) -> str:
    return figure if len(parts) > 1 else f"{figure}-{parts[0]}"


def _marker(points: Sequence[object]) -> str:
    """A single point has no line to be seen by."""
    return "o" if len(points) == 1 else ""
