"""Figures of training and its scores: curves, t-SNE, mining, cost, ablations."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iaa.analysis.cost import Cost
from iaa.analysis.experiments import Experiment
from iaa.analysis.synthetics import Projection
from iaa.analysis.training_log import LogColumns, Mining
from iaa.report.figure_style import CLASSES, MUTED, SERIES, Figure, cycle, label_text, legend, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def losses(logs: Sequence[LogColumns], path: str | Path | None = None) -> Figure:
    """The loss of every step, faint, and the mean over every epoch."""
    with panels() as (figure, (axes,)):
        for log, colour in zip(logs, cycle(len(logs)), strict=True):
            axes.plot(log.step_epochs, log.step_losses, color=colour, alpha=0.25, linewidth=0.7)
            middles = [epoch - 0.5 for epoch in log.epochs]
            axes.plot(
                middles, log.losses, color=colour, label=label_text(log.name), marker=_marker(log.epochs)
            )
        axes.set(xlabel="epoch", ylabel="loss", xlim=(0, None))
        _whole(axes)
        if len(logs) > 1:
            legend(axes)
    ends = "; ".join(f"{log.name} from {log.losses[0]:.3g} to {log.losses[-1]:.3g}" for log in logs)
    caption = "Faint: single steps. Bold: mean over an epoch."
    return Figure("loss", figure, "Loss", f"Loss over epochs: {ends}.", caption).saved(path)


def validation(logs: Sequence[LogColumns], path: str | Path | None = None) -> Figure:
    """Scores on the held-out training classes, epoch by epoch."""
    with panels() as (figure, (axes,)):
        for log, colour in zip(logs, cycle(len(logs)), strict=True):
            for metric, style in (("MAP@R", "-"), ("R@1", "--")):
                points = [(epoch, scores[metric]) for epoch, scores in log.validation if metric in scores]
                epochs, values = [epoch for epoch, _ in points], [value for _, value in points]
                label = f"{metric}, {log.name}" if len(logs) > 1 else metric
                marker = _marker(epochs)
                axes.plot(epochs, values, style, color=colour, label=label_text(label, 40), marker=marker)
        axes.set(xlabel="epoch", ylabel="percent", xlim=(0, None))
        _whole(axes)
        legend(axes)
    last = "; ".join(f"{log.name} ends at MAP@R {log.validation[-1][1]['MAP@R']:.1f} %" for log in logs)
    caption = "Classes kept out of training; test classes are measured once, at the end."
    return Figure("validation", figure, "Held-out classes", f"Held-out scores: {last}.", caption).saved(path)


def tsne(
    projection: Projection,
    names: dict[int, str],
    path: str | Path | None = None,
    *,
    parts: Sequence[str] = ("originals", "synthetics"),
    title: str = "",
) -> Figure:
    """Fig. 14: originals and synthetics in one map, a panel each; classes by colour."""
    labels = projection.labels.unique().tolist()
    with panels(len(parts), width=4.6, height=4.4) as (figure, every):
        for axes, part in zip(every, parts, strict=True):
            for label, colour in zip(labels, cycle(len(labels), CLASSES), strict=True):
                mine = projection.labels == label
                if part == "synthetics":
                    others = projection.originals[mine].numpy()
                    axes.scatter(
                        others[:, 0], others[:, 1], s=9, facecolors="none", edgecolors=colour, linewidths=0.5
                    )
                shown = projection.originals if part == "originals" else projection.synthetics.flatten(0, 1)
                which = (
                    mine if part == "originals" else mine.repeat_interleave(projection.synthetics.shape[1])
                )
                points = shown[which].numpy()
                size = 22 if part == "originals" else 9
                name = label_text(names.get(label, str(label)), 20)
                axes.scatter(
                    points[:, 0], points[:, 1], s=size, color=colour, linewidths=0, alpha=0.85, label=name
                )
            axes.set(xticks=[], yticks=[], xlim=_limits(projection, 0), ylim=_limits(projection, 1))
            axes.grid(False)
            axes.spines[:].set_visible(False)
            if len(parts) > 1:
                axes.set_title(part, fontsize=9.5, color=MUTED, loc="left")
            if part == parts[0]:
                handles, texts = axes.get_legend_handles_labels()
                options: dict[str, Any] = {"fontsize": 7.5, "handletextpad": 0.1}
                options["ncols"] = 5 if len(parts) > 1 else 3
                shown_legend = figure.legend(handles, texts, loc="outside lower center", **options)
                for text in shown_legend.get_texts():
                    text.set_color(MUTED)
    subject = " and ".join(parts)
    alt = f"t-SNE map of {subject} of {len(labels)} classes; each class has its own colour."
    copies = projection.synthetics.shape[1]
    captions = {
        "originals": f"{len(projection.rows)} samples of {len(labels)} classes drawn at random.",
        "synthetics": f"{copies} around each sample, in the same map; rings are originals.",
    }
    caption = " ".join(captions[part] for part in parts)
    return Figure(_name("tsne", parts), figure, title or subject.capitalize(), alt, caption).saved(path)


def mining(
    results: Sequence[Mining],
    path: str | Path | None = None,
    *,
    parts: Sequence[str] = ("negatives", "shares"),
) -> Figure:
    """Fig. 10: mined hard negatives, and the share of synthetics among them."""
    with panels(len(parts)) as (figure, every):
        for axes, part in zip(every, parts, strict=True):
            for run, colour in zip(results, cycle(len(results)), strict=True):
                owner = f", {run.name}" if len(results) > 1 else ""
                lines = {"synthetics among negatives": _percent(run.synthetic_negatives)}
                lines |= {"synthetics among positives": _percent(run.synthetic_positives)}
                if part == "negatives":
                    lines = {"negatives": list(run.negatives)}
                for (name, values), style in zip(lines.items(), ("-", "--"), strict=False):
                    label = label_text(name + owner, 48)
                    axes.plot(run.epochs, values, style, color=colour, label=label, marker=_marker(values))
            axes.set_ylabel("mined negatives a step" if part == "negatives" else "percent")
            axes.set(xlabel="epoch", xlim=(0, None), ylim=(0, None))
            _whole(axes)
            if part == "shares" or len(results) > 1:
                legend(axes)
    last = "; ".join(f"{run.name} {100 * run.synthetic_negatives[-1]:.0f} %" for run in results)
    alt = f"Mining over epochs. Share of synthetics among the negatives in the last epoch: {last}."
    titles = {"negatives": "Hard negatives", "shares": "Synthetics among the mined pairs"}
    title = titles[parts[0]] if len(parts) == 1 else "Mined pairs"
    return Figure(_name("mining", parts), figure, title, alt, "Means over the steps of an epoch.").saved(path)


def cost(
    result: Cost, path: str | Path | None = None, *, parts: Sequence[str] = ("time", "memory")
) -> Figure:
    """Fig. 11: time and memory of a step over the number of copies."""
    copies = [step.copies for step in result.steps]
    with panels(len(parts)) as (figure, every):
        for axes, part in zip(every, parts, strict=True):
            values = [step.milliseconds if part == "time" else step.mebibytes for step in result.steps]
            ends = [
                (step.low, step.high) if part == "time" else (step.mebibytes,) * 2 for step in result.steps
            ]
            spans = [[abs(end[side] - v) for end, v in zip(ends, values, strict=True)] for side in (0, 1)]
            axes.errorbar(copies, values, yerr=spans, color=SERIES[0], marker="o", markersize=3, capsize=2)
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
    return Figure(_name("cost", parts), figure, title, alt, caption).saved(path)


def ablation(
    result: Experiment, path: str | Path | None = None, *, metric: str = "R@1", test: str | None = None
) -> Figure:
    """One metric of every arm over the seeds: lines along the axis where there is one, else bars."""
    test = test or next(iter(result.rows[0].scores))
    scored = [(row, row.scores[test][metric]) for row in result.rows]
    lines = result.axis is not None
    height = 2.9 if lines else 0.6 + 0.3 * len(scored)
    with panels(height=height) as (figure, (axes,)):
        all_series = list(dict.fromkeys(row.series for row, _ in scored))
        for series, colour in zip(all_series, cycle(len(all_series)), strict=True):
            mine = [(row, score) for row, score in scored if row.series == series]
            means = [score.mean for _, score in mine]
            spread = [score.deviation or 0.0 for _, score in mine]
            if lines and all(row.x is not None for row, _ in mine):
                positions = [row.x for row, _ in mine if row.x is not None]
                axes.errorbar(
                    positions,
                    means,
                    yerr=spread,
                    color=colour,
                    marker="o",
                    ms=3,
                    capsize=2,
                    label=label_text(series),
                )
            elif lines:
                for row, score in mine:
                    axes.axhline(score.mean, color=colour, linestyle="--", label=label_text(row.arm))
            else:
                heights = [len(scored) - 1 - scored.index(pair) for pair in mine]
                axes.errorbar(means, heights, xerr=spread, color=colour, fmt="o", ms=4, capsize=2)
        if lines:
            axes.set(xlabel=result.axis, ylabel=f"{metric}, %")
            legend(axes)
        else:
            axes.set_yticks(range(len(scored)), [label_text(row.arm) for row, _ in reversed(scored)])
            axes.set(xlabel=f"{metric}, %")
    best, score = max(scored, key=lambda pair: pair[1].mean)
    alt = f"{result.title}: {metric} of {len(scored)} arms; {best.arm} is highest with {score.mean:.1f} %."
    caption = f"{result.source}. {_seeds(len(result.seeds))}"
    return Figure(f"ablation-{result.name}", figure, result.title, alt, caption).saved(path)


def _name(figure: str, parts: Sequence[str]) -> str:
    return figure if len(parts) > 1 else f"{figure}-{parts[0]}"


def _percent(shares: Sequence[float]) -> list[float]:
    return [100 * share for share in shares]


def _seeds(number: int) -> str:
    return "One seed." if number == 1 else f"Mean of {number} seeds; bars are their standard deviation."


def _limits(projection: Projection, axis: int) -> tuple[float, float]:
    """The same window for every panel of a map."""
    low = min(float(projection.originals[:, axis].min()), float(projection.synthetics[..., axis].min()))
    high = max(float(projection.originals[:, axis].max()), float(projection.synthetics[..., axis].max()))
    room = 0.04 * (high - low) or 1.0
    return low - room, high + room


def _whole(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _marker(points: Sequence[object]) -> str:
    return "o" if len(points) == 1 else ""
