"""Cosine similarities of the first rows of a matrix with all its rows, with a gradient of few passes."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

_LEAST = 1e-12  # the norm below which `F.normalize` stops dividing


def cosine_matrix(rows: Float[Tensor, "R D"], queries: int) -> Float[Tensor, "Q R"]:
    """Similarities of the first ``queries`` rows with all rows, each normalised once.

    Autograd's own gradient of the normalisation goes over the rows eight times; this one three times.
    """
    if torch.compiler.is_compiling():  # a compiler merges the passes by itself
        return _plain(rows, queries)
    matrix: Tensor = _CosineMatrix.apply(rows, queries)  # type: ignore[no-untyped-call]
    return matrix


def _plain(rows: Tensor, queries: int) -> Tensor:
    normalized = F.normalize(rows, dim=1)
    return normalized[:queries] @ normalized.T


class _CosineMatrix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, queries: int) -> Tensor:
        scale = torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min_(_LEAST).reciprocal_()
        normalized = rows * scale
        ctx.save_for_backward(rows, normalized, scale)
        ctx.queries = queries
        matrix: Tensor = normalized[:queries] @ normalized.T
        return matrix

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        rows, normalized, scale = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient of a gradient was asked for
            return torch.autograd.grad(_plain(rows, ctx.queries), rows, grad, create_graph=True)[0], None
        queries = normalized[: ctx.queries]
        inner = grad.T @ queries
        inner[: ctx.queries].addmm_(grad, normalized)
        along = torch.linalg.vecdot(inner, normalized)[:, None]
        along = along.where(scale < 1 / _LEAST, 0.0)  # a zero vector is not divided by its norm
        return torch.addcmul(inner, normalized, along, value=-1).mul_(scale), None
