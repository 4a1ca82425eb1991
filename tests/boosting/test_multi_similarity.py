"""The multi-similarity loss with few passes, against pytorch-metric-learning and plain operations."""

import pytest
import torch
from pytorch_metric_learning import distances, losses

from iaa.boosting.multi_similarity import log_one_plus_sum, with_few_passes


def plain(matrix: torch.Tensor, chosen: torch.Tensor, scale: float, base: float) -> torch.Tensor:
    rows = [(scale * (row[kept] - base)).exp().sum() for row, kept in zip(matrix, chosen, strict=True)]
    return torch.stack(rows).add(1).log()[:, None]


def example(rows: int = 5, columns: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    matrix = 2 * torch.rand(rows, columns, dtype=torch.float64, generator=generator) - 1
    chosen = torch.rand(rows, columns, generator=generator) < 0.5
    chosen[1] = False  # an anchor without a pair
    return matrix.requires_grad_(), chosen


@pytest.mark.parametrize("scale", [50.0, -2.0])
def test_values_and_gradients_are_those_of_plain_operations(scale):
    matrix, chosen = example()
    values = [function(matrix, chosen, scale, 0.5) for function in (log_one_plus_sum, plain)]
    ours, theirs = (torch.autograd.grad(value.square().sum(), matrix)[0] for value in values)
    assert torch.allclose(values[0], values[1], rtol=1e-12, atol=1e-14)
    assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-14)
    assert values[0][1] == 0


def test_exponents_beyond_float32_neither_overflow_nor_hide_others():
    matrix = torch.tensor([[1.0, 0.9, -1.0], [-1.0, -1.0, 1.0]]).requires_grad_()
    chosen = torch.tensor([[True, True, True], [True, True, False]])
    value = log_one_plus_sum(matrix, chosen, 200.0, 0.0)
    gradient = torch.autograd.grad(value.sum(), matrix)[0]
    assert value.tolist() == [[200.0], [0.0]]
    assert torch.allclose(gradient, torch.tensor([[200.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), atol=1e-5)


def test_gradients_of_gradients():
    matrix, chosen = example()
    assert torch.autograd.gradgradcheck(lambda m: log_one_plus_sum(m, chosen, 5.0, 0.5), (matrix,))


@pytest.mark.parametrize("distance", [distances.CosineSimilarity(), distances.LpDistance()])
def test_the_loss_and_its_gradient_are_those_of_pml(distance, monkeypatch: pytest.MonkeyPatch):
    loss = losses.MultiSimilarityLoss(alpha=3, beta=40, base=0.4, distance=distance)
    z = torch.randn(12, 8, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(12) % 4
    theirs = loss(z, labels)
    with with_few_passes(loss):
        monkeypatch.setattr(losses.MultiSimilarityLoss, "_compute_loss", None)
        ours = loss(z, labels)
    gradients = [torch.autograd.grad(value, z)[0] for value in (ours, theirs)]
    assert torch.allclose(ours, theirs)
    assert torch.allclose(*gradients)
    monkeypatch.undo()
    assert torch.equal(loss(z, labels), theirs)  # PML's own way is back
