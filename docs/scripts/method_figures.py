"""The figures of "How it works": the method on toy Gaussians, drawn by the package's own functions.

python docs/scripts/method_figures.py [FOLDER]
"""

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
import torch
from matplotlib import pyplot
from matplotlib.patches import Ellipse

import iaa

FOLDER = Path(__file__).parents[1] / "images"
CENTERS = torch.tensor([[2.8, 4.6], [4.0, 1.7], [5.4, 6.2], [6.1, 3.5], [9.8, 5.8], [11.6, 3.8], [9.6, 2.0]])
"""Positive, as features behind a ReLU are: Eq. 9 compares squared means."""
COUNTS = (60, 60, 60, 4, 60, 60, 60)
FEW = 3
"""The class with few samples."""
INK, SOFT, STRONG, REAL = "#37474f", "#b0bec5", "#c2410c", "#00796b"


def true_variance(mean: torch.Tensor) -> torch.Tensor:
    """Similar classes vary alike: wide on the left, tall on the right."""
    share = torch.sigmoid(mean[..., :1] - 8)
    return torch.cat([0.75 * (1 - share) + 0.06, 0.75 * share + 0.06], dim=-1)


def toy() -> tuple[torch.Tensor, torch.Tensor]:
    """Samples of seven classes, one of which has four."""
    generator = torch.Generator().manual_seed(24)
    labels = torch.repeat_interleave(torch.arange(len(COUNTS)), torch.tensor(COUNTS))
    noise = torch.randn(len(labels), 2, generator=generator)
    return CENTERS[labels] + true_variance(CENTERS[labels]).sqrt() * noise, labels


def draw(folder: Path = FOLDER) -> list[Path]:
    """All figures as SVG, the same bytes on every run."""
    settings = {"svg.hashsalt": "iaa", "font.size": 11, "axes.spines.top": False, "axes.spines.right": False}
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with pyplot.rc_context(settings):
        for make in (estimation, correction, weight, synthesis):
            figure = make()
            path = folder / f"method-{make.__name__}.svg"
            figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
            pyplot.close(figure)
            written.append(path)
    return written


def estimation() -> Any:
    """Classes as Gaussians, and a class with too few samples to estimate one."""
    z, labels = toy()
    stats = iaa.estimate(z, labels, num_classes=len(COUNTS))
    figure, axes = _plane()
    for place in range(len(COUNTS)):
        few = place == FEW
        own = z[labels == place]
        axes.scatter(*own.T, s=34 if few else 9, color=STRONG if few else SOFT, zorder=3 if few else 1)
        _ellipse(axes, stats.mean[place], stats.variance[place], STRONG if few else INK)
    _ellipse(axes, stats.mean[FEW], true_variance(CENTERS[FEW]), REAL, style="--")
    axes.annotate("four samples", stats.mean[FEW] + torch.tensor([-0.7, -1.35]), color=STRONG)
    _legend(axes, {"estimated (Eq. 7-8)": (INK, "-"), "true": (REAL, "--")})
    return figure


def correction() -> Any:
    """What the small class borrows, and from whom."""
    z, labels = toy()
    stats = iaa.estimate(z, labels, num_classes=len(COUNTS))
    corrected = iaa.correct(stats, neighbors=3)
    figure, axes = _plane()
    near = iaa.mean_distance(stats)[FEW].argsort()[1:4].tolist()
    for place in range(len(COUNTS)):
        axes.scatter(*z[labels == place].T, s=9, color=SOFT, zorder=1)
        if place in near:
            _ellipse(axes, stats.mean[place], stats.variance[place], INK)
            axes.annotate(
                "",
                stats.mean[FEW],
                stats.mean[place],
                arrowprops={"arrowstyle": "->", "color": INK, "shrinkA": 14, "shrinkB": 14, "alpha": 0.6},
            )
    _ellipse(axes, stats.mean[FEW], stats.variance[FEW], STRONG)
    _ellipse(axes, stats.mean[FEW], corrected[FEW], STRONG, style=":", width=2.6)
    _ellipse(axes, stats.mean[FEW], true_variance(CENTERS[FEW]), REAL, style="--")
    _legend(axes, {"own": (STRONG, "-"), "corrected (Eq. 15)": (STRONG, ":"), "true": (REAL, "--")})
    return figure


def weight() -> Any:
    """Eq. 16 for three values of falloff."""
    figure, axes = pyplot.subplots(figsize=(6.2, 3.1))
    count = torch.arange(1, 61)
    for falloff, color in ((0.02, SOFT), (0.1, STRONG), (0.5, INK)):
        axes.plot(
            count, iaa.correction_weight(count, falloff=falloff), color=color, label=f"falloff {falloff:g}"
        )
    axes.set(xlabel="samples of the class", ylabel="share it borrows", ylim=(0, 1.05))
    axes.axvline(40, color=SOFT, linestyle=":")
    axes.annotate("few = 40", (40.6, 0.9), color=INK)
    axes.legend(frameon=False)
    return figure


def synthesis() -> Any:
    """Synthetics around their samples, at two strengths."""
    z, labels = toy()
    stats = iaa.estimate(z, labels, num_classes=len(COUNTS))
    variance = iaa.correct(stats, neighbors=3)
    figure, both = pyplot.subplots(1, 2, figsize=(8.6, 2.3), sharex=True, sharey=True)
    shown = (0, 3, 5)
    for axes, strength in zip(both, (0.2, 0.8), strict=True):
        for place, color in zip(shown, (INK, STRONG, REAL), strict=True):
            own = z[labels == place][:8]
            generator = torch.Generator().manual_seed(place)
            synthetic = iaa.synthesize(
                own, variance[place].expand_as(own), strength=strength, generator=generator
            )
            axes.scatter(*synthetic.flatten(0, 1).T, s=22, facecolors="none", edgecolors=color, alpha=0.7)
            axes.scatter(*own.T, s=26, color=color)
        axes.set_title(f"strength {strength:g}", fontsize=11)
        _bare(axes)
    figure.supxlabel("filled: samples; open: three synthetics of each (Eq. 17)", fontsize=10, color=INK)
    return figure


def _plane() -> Any:
    figure, axes = pyplot.subplots(figsize=(7.2, 4.0))
    axes.set(xlim=(0.6, 13.0), ylim=(0.0, 7.9))
    _bare(axes)
    return figure, axes


def _bare(axes: Any) -> None:
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(False)


def _ellipse(
    axes: Any, mean: torch.Tensor, variance: torch.Tensor, color: str, *, style: str = "-", width: float = 1.6
) -> None:
    """Two standard deviations."""
    size = 4 * np.sqrt(variance.numpy())
    axes.add_patch(
        Ellipse(mean.tolist(), *size, fill=False, color=color, linestyle=style, linewidth=width, zorder=4)
    )


def _legend(axes: Any, lines: dict[str, tuple[str, str]]) -> None:
    for name, (color, style) in lines.items():
        axes.plot([], [], color=color, linestyle=style, label=name)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=len(lines), frameon=False)


if __name__ == "__main__":
    for path in draw(*map(Path, sys.argv[1:])):
        print(path)
