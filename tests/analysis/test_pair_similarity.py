import math

import pytest
import torch

from iaa.analysis.pair_similarity import similarity
from iaa.retrieval import tiles


def test_all_pairs_are_counted_once(monkeypatch):
    monkeypatch.setattr(tiles.each_tile, "__defaults__", (64,))  # tiles on and off the diagonal
    z, labels = torch.randn(150, 6), torch.randint(0, 7, (150,))
    result = similarity(z, labels, name="x", bins=20)
    positive, negative = [], []
    for i in range(150):
        for j in range(i):
            value = float(z[i] @ z[j] / (z[i].norm() * z[j].norm()))
            (positive if labels[i] == labels[j] else negative).append(value)
    assert (result.positives, result.negatives) == (len(positive), len(negative))
    for shares, values in ((result.positive, positive), (result.negative, negative)):
        counted = [0] * 20
        for value in values:
            counted[min(19, math.floor((value + 1) * 10))] += 1
        assert [share * len(values) for share in shares] == pytest.approx(counted, abs=1.01)  # at an edge
    mean, other = torch.tensor(positive).double(), torch.tensor(negative).double()
    assert result.positive_mean == pytest.approx(float(mean.mean()), abs=1e-5)
    assert result.negative_deviation == pytest.approx(float(other.std(correction=0)), abs=1e-5)
    root = ((mean.var(correction=0) + other.var(correction=0)) / 2).sqrt()
    assert result.d_prime == pytest.approx(float((mean.mean() - other.mean()) / root), abs=1e-4)
    shared = sum(min(a, b) for a, b in zip(result.positive, result.negative, strict=True))
    assert result.overlap == pytest.approx(shared)
    assert result.edges[0] == -1
    assert result.edges[-1] == 1


def test_ends_of_the_scale():
    z = torch.tensor([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [-3.0, 0.0]])
    result = similarity(z, torch.tensor([0, 0, 1, 1]), bins=10)
    assert result.positive[-1] == 1
    assert result.negative[0] == 1
    assert result.overlap == 0


def test_one_kind_of_pair_alone_is_refused():
    with pytest.raises(ValueError, match="got no positive pair in 3 samples"):
        similarity(torch.randn(3, 2), torch.arange(3))
    with pytest.raises(ValueError, match="got no negative pair in 3 samples"):
        similarity(torch.randn(3, 2), torch.zeros(3, dtype=torch.long))
