import math

import pytest
import torch
from scipy.stats import spearmanr

import iaa
from iaa.analysis import spearman as module
from iaa.method.gaussians import ClassStats


def classes(number: int = 14, dim: int = 3) -> ClassStats:
    mean = torch.randn(number, dim, dtype=torch.double)
    variance = mean.square() * 0.3 + torch.rand(number, dim, dtype=torch.double)
    return ClassStats(torch.arange(number) + 1, mean, variance)


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize(("squared", "root"), [(True, False), (False, False), (True, True), (False, True)])
def test_it_is_the_average_coefficient_of_scipy(p, squared, root, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 40)  # several blocks
    stats = classes()
    by_mean = iaa.mean_distance(stats, p=p, squared=squared)
    by_cov = iaa.cov_distance(stats, p=p, root=root)
    expected = []
    for i in range(1, 14):  # the first class has one sample and takes no part
        others = [j for j in range(1, 14) if j != i]
        expected.append(spearmanr(by_mean[i, others], by_cov[i, others]).statistic)
    result = iaa.spearman(stats, p=p, squared=squared, root=root)
    assert result == pytest.approx(sum(expected) / len(expected))


def test_ties_share_their_rank():
    mean = torch.tensor([[0.0], [1.0], [1.0], [2.0], [2.0], [3.0]])
    stats = ClassStats(torch.full((6,), 5), mean, mean**2)
    assert iaa.spearman(stats) == pytest.approx(1.0)


def test_min_samples_chooses_classes():
    stats = classes()
    large = stats.take(torch.arange(5, 14))
    assert iaa.spearman(stats, min_samples=6) == pytest.approx(iaa.spearman(large))


def test_nothing_to_rank_is_nan():
    assert math.isnan(iaa.spearman(classes(2)))
    same = ClassStats(torch.full((5,), 3), torch.ones(5, 2), torch.ones(5, 2))
    assert math.isnan(iaa.spearman(same))


@pytest.mark.usefixtures("unchecked")
def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="p must be at least 1, got 0"):
        iaa.spearman(classes(), p=0)
