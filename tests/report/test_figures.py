from pathlib import Path

import pytest
import torch

pytest.importorskip("matplotlib")

from iaa.analysis.correlation import correlation
from iaa.analysis.cost import Cost, StepCost
from iaa.analysis.covariance_spread import variety, weights
from iaa.analysis.experiments import ArmRow, Experiment, Score
from iaa.analysis.pair_similarity import similarity
from iaa.analysis.synthetics import Projection
from iaa.analysis.training_log import Mining, log_columns
from iaa.method.gaussians import estimate
from iaa.report import figures


@pytest.fixture(scope="module")
def data():
    torch.manual_seed(0)
    labels = torch.arange(12).repeat_interleave(5)
    return torch.randn(12, 4)[labels] + 0.3 * torch.randn(60, 4), labels


def log(name):
    lines = [{"epoch": e, "step": s, "loss": 3 - e} for e in range(2) for s in range(3)]
    times = {"seconds": 2.0, "statistics_seconds": 0.5, "images_per_second": 10.0}
    lines += [{"epoch": e, "loss": 3 - e, "val": {"MAP@R": 20.0, "R@1": 40.0}, **times} for e in range(2)]
    return log_columns(name, lines)


def mined(name, counts=(5.0, 4.0)):
    return Mining(name, (1, 2), (3.0, 2.0), counts, counts, (0.5, 0.6), (0.7, 0.8), True)


def ablated(axis):
    score = Score(50.0, 1.0, (49.0, 51.0), None, None, None, None)
    rows = [
        ArmRow("K=5", "IAA", 5.0 if axis else None, None, (), {"test": {"R@1": score}}, {}, 1.0),
        ArmRow("K=25", "IAA", 25.0 if axis else None, None, (), {"test": {"R@1": score}}, {}, 1.0),
        ArmRow("baseline", "baseline", None, None, (), {"test": {"R@1": score}}, {}, 1.0),
    ]
    return Experiment("neighbors", "Neighbours", "Fig. 8", axis, (0, 1), tuple(rows), ())


def cost():
    steps = tuple(
        StepCost(
            copies=m,
            milliseconds=10.0 + m,
            low=9.0 + m,
            high=12.0 + m,
            more_time=10.0 * m,
            mebibytes=100.0 + m,
            more_memory=1.0 * m,
        )
        for m in range(3)
    )
    return Cost(steps, 0.1, 1.0, 10.0, 5, ("emoji",))


def drawings(data):
    z, labels = data
    names = {label: f"class {label}" for label in range(12)}
    rows = torch.arange(60)
    projection = Projection(rows, labels, torch.randn(60, 2), torch.randn(60, 3, 2), 20.0)
    yield figures.correlation(correlation(z, labels, draws=9))
    yield figures.variety(variety(estimate(z, labels, num_classes=12)))
    yield figures.weights(weights())
    yield figures.similarity([similarity(z, labels, name=name) for name in "ab"])
    yield figures.mining([mined("a"), mined("b", (9.0, 8.0))])
    yield figures.cost(cost())
    yield figures.ablation(ablated("K"))
    yield figures.ablation(ablated(None))
    yield figures.losses([log("a"), log("b")])
    yield figures.validation([log("a")])
    yield figures.tsne(projection, names, "originals")
    yield figures.tsne(projection, names, "synthetics")


def test_every_figure_is_drawn_to_a_file_and_for_a_page(data, tmp_path: Path):
    for number, drawing in enumerate(drawings(data)):
        assert drawing.save(tmp_path / f"{number}.png").stat().st_size > 3000, drawing.name
        assert drawing.alt.endswith(".")
        assert "<svg" in drawing.svg(number)


def test_alt_texts_carry_the_numbers(data):
    z, labels = data
    pairs = similarity(z, labels)
    assert f"overlap {pairs.overlap:.2f}" in figures.similarity([pairs]).alt
    assert "2 copies take +20 % time and +2 % memory" in figures.cost(cost()).alt
    assert "a from 3 to 2" in figures.losses([log("a")]).alt


def test_lines_show_the_numbers_they_are_given():
    axes = figures.mining([mined("a")], parts=("shares",)).figure.axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [[50, 60], [70, 80]]
    axes = figures.cost(cost(), parts=("memory",)).figure.axes[0]
    assert list(axes.lines[0].get_ydata()) == [100, 101, 102]
    faint, bold = figures.losses([log("a")]).figure.axes[0].lines
    assert list(faint.get_ydata()) == [3, 3, 3, 2, 2, 2]
    assert list(bold.get_xdata()) == [0.5, 1.5]  # the middle of each epoch


def test_maps_show_synthetics_within_the_same_window_as_originals():
    labels = torch.tensor([3, 3, 7])
    positions = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 4.0]])
    projection = Projection(torch.arange(3), labels, positions, positions[:, None] + torch.ones(3, 2, 2), 2.0)
    originals, synthetics = (
        figures.tsne(projection, {3: "cat"}, part) for part in ("originals", "synthetics")
    )
    first, second = originals.figure.axes[0], synthetics.figure.axes[0]
    assert [len(points.get_offsets()) for points in first.collections] == [2, 1]
    assert [len(points.get_offsets()) for points in second.collections] == [2, 4, 1, 2]  # rings, then points
    assert first.get_xlim() == second.get_xlim() == pytest.approx((-0.12, 3.12))
    assert first.get_ylim() == second.get_ylim() == pytest.approx((-0.2, 5.2))
    assert [text.get_text() for text in originals.figure.legends[0].get_texts()] == ["cat", "7"]
