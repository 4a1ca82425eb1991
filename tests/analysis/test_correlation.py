import json
import math

import pytest
import torch
from scipy.stats import spearmanr

from iaa.analysis import correlation as module
from iaa.analysis.correction_advice import held_out
from iaa.analysis.correlation import correlation
from iaa.analysis.serialize import plain
from iaa.analysis.spearman import permutations, spearman
from iaa.method.gaussians import ClassStats, cov_distance, estimate, mean_distance


def related(classes: int = 40, each: int = 12, dim: int = 6, *, related: bool = True) -> tuple:
    """Classes whose deviation follows their mean, or that of a class drawn at random."""
    mean = torch.rand(classes, dim) * 3
    deviation = 0.2 + mean if related else 0.2 + mean[torch.randperm(classes)]
    labels = torch.arange(classes).repeat_interleave(each)
    return mean[labels] + deviation[labels] * torch.randn(len(labels), dim), labels


def test_all_sixteen_coefficients_are_those_of_spearman():
    z, labels = related(12)
    result = correlation(z, labels, draws=9)
    stats = estimate(z, labels, num_classes=12)
    assert len(result.coefficients) == 16
    for item in result.coefficients:
        expected = spearman(stats, p=item.p, squared=item.squared, root=item.root)
        assert item.value == pytest.approx(expected)
    assert result.value() == result.value(p=2, squared=True, root=False)


def test_labels_may_be_any_numbers_and_small_classes_are_left_out():
    z, labels = related(12)
    labels = labels * 1000 + 7
    odd = torch.tensor([5, 6, 6])
    result = correlation(torch.cat([z, z[:3]]), torch.cat([labels, odd]), min_samples=3, draws=9)
    assert (result.classes, result.left_out, result.samples) == (12, 2, (12, 12, 12))
    assert result.value() == pytest.approx(correlation(z, labels, draws=9).value())


def test_permutations_are_the_literal_ones():
    """Every draw dealt out by hand and ranked by scipy."""
    z, labels = related(8, dim=3)
    stats = estimate(z.double(), labels, num_classes=8)
    generator = torch.Generator().manual_seed(3)
    by_mean = mean_distance(stats)
    values = []
    for _ in range(5):
        order = torch.randperm(8, generator=generator)
        dealt = ClassStats(stats.count, stats.mean, stats.variance[order])
        by_cov = cov_distance(dealt)
        rows = []
        for i in range(8):
            others = [j for j in range(8) if j != i]
            rows.append(spearmanr(by_mean[i, others], by_cov[i, others]).statistic)
        values.append(sum(rows) / 8)
    result = permutations(stats, draws=5, seed=3)
    expected = torch.tensor(values, dtype=torch.float64)
    assert result.mean == pytest.approx(float(expected.mean()), abs=1e-6)
    assert result.deviation == pytest.approx(float(expected.std()), abs=1e-6)
    assert result.observed == pytest.approx(spearman(stats), abs=1e-6)
    assert result.p_value == (1 + int((expected >= result.observed).sum())) / 6


def test_curves_fall_from_one_to_zero_and_follow_each_other():
    z, labels = related()
    result = correlation(z, labels, names={0: "zero"}, draws=9)
    for curve in (result.average, *result.examples):
        assert len(curve.position) == 39
        assert curve.mean_distance[0] == pytest.approx(1)
        assert curve.mean_distance[-1] == pytest.approx(0)
        assert list(curve.mean_distance) == sorted(curve.mean_distance, reverse=True)
        assert 0 <= min(curve.cov_distance) <= max(curve.cov_distance) <= 1
    low, middle, high = (curve.coefficient for curve in result.examples)
    assert low < middle < high


def test_curve_of_a_class_by_hand():
    mean = torch.tensor([0.0, 1.0, 2.0, 3.0]).sqrt()[:, None]  # squared means 0, 1, 2, 3
    stats = ClassStats(torch.full((4,), 9), mean, torch.tensor([[1.0], [3.0], [2.0], [5.0]]))
    both = module._along(stats, torch.tensor([0]), torch.arange(3))
    # from class 0 the others in falling order of means: 3, 2, 1; their variances are off by 4, 1, 2
    assert torch.allclose(both[:, 0], torch.tensor([[1.0, 0.5, 0.0], [1.0, 0.0, 1 / 3]]).double(), atol=1e-6)


def test_of_many_classes_an_even_sample_is_ranked():
    z, labels = related(30)
    result = correlation(z, labels, compared=15, draws=9)
    assert (result.classes, result.compared, result.permutations.classes) == (30, 15, 15)
    taken = torch.isin(labels, torch.linspace(0, 29, 15, dtype=torch.float64).round().long())
    assert result.value() == pytest.approx(correlation(z[taken], labels[taken], draws=9).value())


def test_verdict_follows_the_data():
    z, labels = related(each=30)
    result = correlation(z, labels, draws=99)
    assert result.verdict.level == "strong"
    assert result.permutations.p_value == pytest.approx(0.01)
    assert abs(result.permutations.mean) < 0.05
    assert result.verdict.helps is not None

    z, labels = related(each=30, related=False)
    result = correlation(z, labels, draws=99)
    assert result.verdict.level == "none"
    assert result.verdict.text.startswith("No correlation")


def test_verdict_sees_that_it_is_scale_alone():
    """Every class the same shape at another size: the coefficient is high, without scale nothing is left."""
    size = 1 + 4 * torch.rand(30, 1)
    labels = torch.arange(30).repeat_interleave(40)
    z = (size * torch.ones(30, 8))[labels] + size[labels] * torch.randn(1200, 8)
    result = correlation(z, labels, draws=99)
    assert result.verdict.level == "strong"
    assert result.shape < 0.5 * result.value()
    assert any("most of it is scale" in reason for reason in result.verdict.rests_on)


def test_too_few_classes_is_unknown_or_an_error():
    z, labels = related(5)
    assert correlation(z, labels, draws=9).verdict.level == "unknown"
    with pytest.raises(ValueError, match="at least 3 classes of 2 samples or more, got 2 of 2"):
        correlation(z[:24], labels[:24])


def test_small_classes_are_called_noise():
    z, labels = related(20, each=3)
    result = correlation(z, labels, draws=9)
    assert result.held_out is None
    assert result.verdict.helps is None
    assert any("mostly noise" in reason for reason in result.verdict.rests_on)


def test_borrowing_pays_where_neighbours_are_alike_and_not_where_they_differ():
    centers = torch.randn(6, 10) * 20
    spreads = 0.2 + 3 * torch.rand(6, 10)
    labels = torch.arange(60).repeat_interleave(6)
    family = labels % 6
    z = centers[family] + 0.1 * torch.randn(60, 10)[labels] + spreads[family] * torch.randn(len(labels), 10)
    pays = held_out(z, labels, num_classes=60, neighbors=5)
    assert pays.classes == 60
    assert pays.samples == 3
    assert pays.corrected < pays.own
    assert pays.neighbors < pays.overall
    assert pays.closer > 0.6

    own = (0.01 + 50 * torch.rand(30, 1) ** 4).expand(
        -1, 10
    )  # as different as can be, wherever the mean lies
    labels = torch.arange(30).repeat_interleave(60)
    z = torch.randn(30, 10)[labels] + own[labels] * torch.randn(len(labels), 10)
    costs = held_out(z, labels, num_classes=30, neighbors=5)
    assert costs.own < costs.corrected


def test_halves_are_literal():
    """One halving by hand: nothing of the held-out half is in the estimate."""
    z = torch.randn(3 * 8, 4)
    labels = torch.arange(3).repeat(8)
    result = held_out(z, labels, num_classes=3, splits=1, seed=5)
    generator = torch.Generator().manual_seed(5)
    shuffled = torch.randperm(24, generator=generator)
    error = length = 0.0
    for label in range(3):
        members = [int(i) for i in shuffled if labels[i] == label]
        first, second = z[members[::2]], z[members[1::2]]
        truth = second.var(0, correction=1)
        error += float((first.var(0, correction=0) - truth).square().sum())
        length += float(truth.square().sum())
    assert result.own == pytest.approx(error / length, rel=1e-5)


def test_it_is_json_and_has_no_nan():
    z, labels = related(12)
    z[:, 0] = 0  # a dead dimension
    text = json.dumps(plain(correlation(z, labels, draws=9)), allow_nan=False)
    assert json.loads(text)["verdict"]["level"] in ("strong", "weak", "none")
    assert plain(math.nan) is None
