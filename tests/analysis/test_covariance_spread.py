import json

import pytest
import torch

import oracles
from iaa.analysis.covariance_spread import variety, weights
from iaa.analysis.serialize import csv_text, plain
from iaa.method.gaussians import estimate


def test_distance_to_the_global_covariance():
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 3, 3])
    z = torch.randn(10, 4)
    result = variety(estimate(z, labels, num_classes=4), labels=[10, 11, 12, 13])
    count, _, covariance = oracles.estimate(z, labels, 4)
    overall = sum(count[k] * covariance[k].diagonal() for k in range(4)) / 10  # Eq. 14
    assert result.labels == (10, 11, 13)
    assert result.count == (3, 2, 4)
    assert result.left_out == 1
    for k, distance in zip((0, 1, 3), result.distance, strict=True):
        gap = oracles.cov_distance(torch.stack([covariance[k].diagonal(), overall]), 0, 1)
        assert distance == pytest.approx(gap / float(overall.norm()), rel=1e-4)
    assert json.loads(json.dumps(plain(result)))["labels"] == [10, 11, 13]


def test_what_sampling_alone_gives_is_seen_in_samples():
    """Classes of one and the same Gaussian: their distance is, squared and on average, what was foretold."""
    labels = torch.arange(4000).repeat_interleave(5)
    labels = torch.cat([labels, 4000 + torch.arange(1000).repeat_interleave(20)])
    z = torch.randn(40_000, 6) * torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0, 1.0])
    stats = estimate(z, labels, num_classes=5000)
    result = variety(stats)
    for part in (slice(0, 4000), slice(4000, 5000)):
        mean_square = sum(distance**2 for distance in result.distance[part]) / len(result.distance[part])
        assert mean_square == pytest.approx(result.expected[part][0] ** 2, rel=0.1)
    assert result.beyond < 0.5


def test_classes_that_truly_differ_are_beyond():
    spread = torch.rand(50, 8) * 3
    labels = torch.arange(50).repeat_interleave(60)
    result = variety(estimate(spread[labels] * torch.randn(3000, 8), labels, num_classes=50))
    assert result.beyond == 1


def test_weights_are_equation_16():
    result = weights(falloffs=(0.1, 1.0), few=5, most=8)
    assert result.count == tuple(range(1, 9))
    for curve in result.curves:
        expected = [oracles.correction_weight(n, curve.falloff, 5) for n in result.count]
        assert list(curve.alpha) == pytest.approx(expected)


def test_csv_quotes_what_must_be():
    assert csv_text(["a", "b"], [['x "y"', None]]) == 'a,b\n"x ""y""",\n'
