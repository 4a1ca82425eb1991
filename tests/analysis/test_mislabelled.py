import math

import pytest
import torch

import oracles
from iaa.analysis import mislabelled
from iaa.analysis.atlas import atlas
from iaa.analysis.mislabelled import FLOOR, explain
from iaa.method.correction import correct
from iaa.method.gaussians import estimate


def classes(number: int = 12, each: int = 15, dim: int = 8, apart: float = 3.0) -> tuple:
    labels = torch.arange(number).repeat_interleave(each)
    spread = 0.5 + torch.rand(number, dim)
    return apart * torch.randn(number, dim)[labels] + spread[labels] * torch.randn(len(labels), dim), labels


def test_leaving_out_in_closed_form_is_leaving_out(monkeypatch):
    """Every sample taken out by hand, its class estimated anew."""
    monkeypatch.setattr(mislabelled, "BLOCK", 200)
    z, labels = classes(5, 6, dim=3)
    z, labels = (
        torch.cat([z, z[:3] + 1]).double(),
        torch.cat([labels, torch.tensor([5, 5, 6])]),
    )  # small ones too
    stats = estimate(z, labels, num_classes=7)
    options = {"neighbors": 3, "falloff": 0.2, "few": math.inf, "global_share": 0.3}
    result = explain(z, labels, stats, candidates=2, **{**options, "few": 4})  # all borrow all the same
    lent = correct(stats, **{**options, "falloff": 0.0})
    ready = correct(stats, **options)
    overall = sum(stats.count[k] * stats.variance[k] for k in range(7)) / len(z)
    for row in range(len(z)):
        k = int(labels[row])
        rest = z[[i for i in range(len(z)) if labels[i] == k and i != row]]
        if len(rest) == 0:
            assert math.isnan(result.distance[row])
            assert math.isnan(result.evidence[row])
            continue
        alpha = oracles.correction_weight(len(rest), 0.2, math.inf)
        variance = (1 - alpha) * rest.var(0, correction=0) + alpha * lent[k]
        variance = variance.maximum(FLOOR * overall) * (1 + 1 / len(rest))
        own, own_fit = fit(z[row] - rest.mean(0), variance)
        near = sorted(range(7), key=lambda j: float((z[row] - stats.mean[j]).norm()))[:3]
        fits = {}
        for j in near:
            if j != k:
                other = ready[j].maximum(FLOOR * overall) * (1 + 1 / int(stats.count[j]))
                fits[j] = fit(z[row] - stats.mean[j], other)
        best = max(fits, key=lambda j: fits[j][1])
        assert float(result.distance[row]) == pytest.approx(own, rel=1e-6)
        assert int(result.other[row]) == best
        assert float(result.other_distance[row]) == pytest.approx(fits[best][0], rel=1e-6)
        assert float(result.evidence[row]) == pytest.approx(fits[best][1] - own_fit, rel=1e-6)


def fit(gap: torch.Tensor, variance: torch.Tensor) -> tuple[float, float]:
    square = sum(float(g) ** 2 / float(v) for g, v in zip(gap, variance, strict=True)) / len(gap)
    logs = sum(math.log(float(v)) for v in variance) / len(gap)
    best = max(-(square / factor + logs + math.log(factor)) / 2 for factor in (square, 0.9 * square, 2.0))
    return math.sqrt(square), best + 0.5  # less a constant: the factor that fits best is the square itself


def test_planted_wrong_labels_are_found_first():
    z, labels = classes()
    wrong = labels.clone()
    planted = torch.tensor([3, 40, 77, 101, 150])
    wrong[planted] = (labels[planted] + 5) % 12
    result = atlas(z, wrong, few=40)
    first = result.suspects[: len(planted)]
    assert {suspect.row for suspect in first} == set(planted.tolist())
    for suspect in first:
        assert suspect.label == int(wrong[suspect.row])
        assert suspect.other_label == int(labels[suspect.row])
        assert suspect.distance > suspect.other_distance
        assert suspect.evidence > 0
    evidence = [suspect.evidence for suspect in result.suspects]
    assert evidence == sorted(evidence, reverse=True)


def test_planted_labels_are_found_in_classes_of_three():
    z, labels = classes(30, 3, dim=16, apart=4)
    wrong = labels.clone()
    wrong[[0, 30, 60]] = torch.tensor([20, 3, 7])
    result = atlas(z, wrong)
    assert {0, 30, 60} <= {suspect.row for suspect in result.suspects[:5]}


def test_clean_classes_far_apart_have_no_suspects():
    z, labels = classes(apart=30)
    result = atlas(z, labels)
    assert result.suspects == ()
    assert result.suspected == 0
    distances = [suspect.distance for row in result.classes for suspect in row.extremes]
    assert max(distances) < 3


def test_dead_dimensions_and_equal_samples_do_no_harm():
    z, labels = classes(4, 6)
    z = torch.cat([z, torch.zeros(24, 2), torch.full((24, 1), 3.0)], dim=1)
    z[:6] = z[0]  # a class of equal samples
    result = atlas(z, labels)
    assert all(math.isfinite(suspect.distance) for row in result.classes for suspect in row.extremes)
    with pytest.raises(ValueError, match="no variance to measure distances in"):
        atlas(torch.ones(6, 3), torch.arange(6) // 3)
