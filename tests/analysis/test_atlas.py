import json

import pytest
import torch

import iaa
import oracles
from iaa.analysis import atlas as module
from iaa.analysis.atlas import atlas, effective_rank
from iaa.analysis.serialize import plain
from iaa.method.gaussians import estimate


def samples(sizes: list[int], dim: int = 5) -> tuple:
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    spread = 0.3 + torch.rand(len(sizes), dim)
    return 4 * torch.randn(len(sizes), dim)[labels] + spread[labels] * torch.randn(len(labels), dim), labels


def test_effective_rank_is_that_of_the_eigenvalues(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 60)  # a block of few classes
    z, labels = samples([1, 2, 3, 9, 4, 12, 1, 7], dim=4)
    shuffled = torch.randperm(len(z))
    z, labels = z[shuffled], labels[shuffled]
    result = effective_rank(z, labels, estimate(z, labels, num_classes=8))
    _, _, covariance = oracles.estimate(z, labels, 8)
    for k in range(8):
        values = torch.linalg.eigvalsh(covariance[k]).clamp(min=0)
        total = values.sum() ** 2 / values.square().sum() if values.sum() > 0 else torch.tensor(0.0)
        assert float(result[k]) == pytest.approx(float(total), abs=1e-4)


def test_a_line_has_rank_one_and_a_ball_almost_all():
    line = torch.randn(30, 1) * torch.randn(1, 6)
    ball = torch.randn(4000, 6)
    labels = torch.tensor([0] * 30 + [1] * 4000)
    z = torch.cat([line, ball])
    result = effective_rank(z, labels, estimate(z, labels, num_classes=2)).tolist()
    assert result[0] == pytest.approx(1, abs=1e-3)
    assert result[1] == pytest.approx(6, abs=0.1)


def test_every_row_is_what_the_equations_say():
    z, labels = samples([1, 3, 6, 9, 50, 4])
    options = {"neighbors": 2, "global_share": 0.2, "falloff": 0.3, "few": 10}
    result = atlas(z, labels * 10, names={10: "one"}, lenders_shown=2, **options)
    count, mean, covariance = oracles.estimate(z, labels, 6)
    corrected = oracles.correct(count, mean, covariance, **options)
    for k, row in enumerate(result.classes):
        own, after = covariance[k].diagonal(), corrected[k].diagonal()
        assert (row.label, row.count) == (10 * k, count[k])
        assert row.alpha == pytest.approx(oracles.correction_weight(count[k], 0.3, 10), abs=1e-6)
        assert row.total_variance == pytest.approx(float(own.sum()), rel=1e-4)
        assert row.corrected_variance == pytest.approx(float(after.sum()), rel=1e-4)
        if count[k] == 1:
            assert row.moved is None
            assert row.effective_rank is None
            assert row.extremes == ()
        else:
            assert row.moved == pytest.approx(float((after - own).norm() / own.norm()), rel=1e-3, abs=1e-6)
            distances = [sample.distance for sample in row.extremes]
            assert distances == sorted(distances, reverse=True)
            assert all(labels[sample.row] == k for sample in row.extremes)
    assert result.classes[1].name == "one"
    assert result.classes[4].lenders == ()  # 50 samples borrow nothing
    borrowed = result.classes[0].lenders
    assert sum(lender.share for lender in borrowed) == pytest.approx(1, abs=1e-5)
    assert borrowed[0].share >= borrowed[1].share


def test_few_zero_means_that_nobody_borrows():
    z, labels = samples([3, 4, 5])
    result = atlas(z, labels, few=0)
    assert all(row.alpha == 0 and row.lenders == () and row.moved == 0 for row in result.classes)
    assert json.dumps(plain(result), allow_nan=False)


def test_ids_and_extremes():
    z, labels = samples([8, 8, 8])
    z[5] += 40
    result = atlas(z, labels, ids=[f"image {row}" for row in range(24)], extremes_shown=2)
    assert result.classes[0].extremes[0].id == "image 5"
    assert len(result.classes[0].extremes) == 2


def test_embeddings_of_a_file_are_enough(tmp_path):
    z, labels = samples([4, 5, 6])
    iaa.Embeddings(z, labels).save(tmp_path / "file.safetensors")
    data = iaa.Embeddings.load(tmp_path / "file.safetensors")
    assert len(atlas(data.z, data.labels, ids=data.ids).classes) == 3


def test_fewer_than_none_cannot_be_shown():
    with pytest.raises(ValueError, match="lenders must be at least 0, got -1"):
        atlas(torch.randn(8, 3), torch.arange(8) % 2, lenders_shown=-1)
