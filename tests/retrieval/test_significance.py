import pytest
import torch

from iaa.retrieval.significance import intervals, paired, sampled_mean


def draw(size, seed=0):
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_interval_has_the_width_theory_gives():
    values = draw(2500)
    low, high = intervals(values[None]).tolist()[0]
    assert low < float(values.mean()) < high
    assert high - low == pytest.approx(2 * 1.96 / 50, rel=0.1)


def test_classes_that_move_together_widen_the_interval():
    classes = torch.arange(1000) // 20
    values = draw(50)[classes]
    by_query, by_class = (
        (s[1] - s[0]) for s in (intervals(values[None])[0], intervals(values[None], classes)[0])
    )
    assert float(by_class / by_query) == pytest.approx(20**0.5, rel=0.2)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    hits = 0
    for seed in range(60):
        low, high = intervals(draw(100, seed)[None], draws=300).tolist()[0]
        hits += low < 0 < high
    assert 50 <= hits <= 60


def test_paired_finds_a_real_difference_and_no_false_one():
    classes = torch.arange(600) // 6
    a = draw(600)
    better = a + 0.1 + 0.3 * draw(600, 1)
    equal = a + 0.3 * draw(600, 2) - 0.3 * draw(600, 2).mean()
    real, none = paired(torch.stack([a, a]), torch.stack([better, equal]), classes)
    assert real.mean == pytest.approx(float((better - a).mean()))
    assert real.low < real.mean < real.high
    assert max(real.p_queries, real.p_classes) < 0.01
    assert min(none.p_queries, none.p_classes) > 0.5


def test_differences_that_come_by_class_do_not_fool_the_test_by_class():
    """Eight classes of 100 that move as one: 800 queries look like proof, eight classes are none."""
    classes = torch.arange(800) // 100
    b = torch.tensor([1.0, 1, 1, 1, 1, -1, -1, 0.5], dtype=torch.float64)[classes]
    (difference,) = paired(torch.zeros(1, 800, dtype=torch.float64), b[None], classes)
    assert difference.p_queries < 0.01
    assert difference.p_classes > 0.05


def test_no_difference_at_all_has_p_one():
    (difference,) = paired(torch.ones(1, 9).double(), torch.ones(1, 9).double(), torch.arange(9) // 3)
    assert (difference.p_queries, difference.p_classes) == (1, 1)


def test_the_interval_of_a_sampled_mean_covers_it_as_often_as_it_says():
    g = torch.Generator().manual_seed(0)
    rare = torch.where(torch.rand(2000, 400, generator=g) < 0.01, -100.0, 0.0).double()  # 1 % of queries lost
    mean, low, high = sampled_mean(rare).T
    assert torch.equal(mean, rare.mean(1))
    assert 0.93 < float(((low <= -1) & (high >= -1)).double().mean()) < 0.995


def test_a_sample_without_differences_is_not_certain():
    _, low, high = sampled_mean(torch.zeros(1, 1000, dtype=torch.float64))[0].tolist()
    assert -low == pytest.approx(high)
    assert high == pytest.approx(0.277, abs=0.001)
