"""The matrix of cosine similarities and its own gradient, against plain operations."""

import torch
import torch.nn.functional as F

from iaa.boosting.cosine_matrix import cosine_matrix


def plain(rows: torch.Tensor, queries: int) -> torch.Tensor:
    normalized = F.normalize(rows, dim=1)
    return normalized[:queries] @ normalized.T


def rows(count: int = 7, dim: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, dim, dtype=torch.float64, generator=generator).requires_grad_()


def test_values_and_gradients_are_those_of_plain_operations():
    z = rows()
    weight = torch.randn(3, 7, dtype=torch.float64)
    assert torch.allclose(cosine_matrix(z, 3), plain(z, 3))
    ours, theirs = (torch.autograd.grad((f(z, 3) * weight).sum(), z)[0] for f in (cosine_matrix, plain))
    assert torch.allclose(ours, theirs)


def test_a_zero_vector_has_the_gradient_of_plain_operations():
    z = rows().detach()
    z[1] = 0
    z.requires_grad_()
    ours, theirs = (torch.autograd.grad(f(z, 3).cos().sum(), z)[0] for f in (cosine_matrix, plain))
    assert torch.allclose(ours, theirs)


def test_gradients_of_gradients():
    assert torch.autograd.gradgradcheck(lambda z: cosine_matrix(z, 3), (rows(),))
