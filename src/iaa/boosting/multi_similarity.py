"""The multi-similarity loss and its miner (Eq. 4-6) with few passes over the matrix of similarities."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from pytorch_metric_learning.losses import MultiSimilarityLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from torch import Tensor, nn

_NEGLIGIBLE = -80.0  # against a sum of at least 1; below it lie float32's subnormal numbers, which are slow


def log_one_plus_sum(
    matrix: Float[Tensor, "A R"], chosen: Bool[Tensor, "A R"], scale: float, base: float
) -> Float[Tensor, "A 1"]:
    """log(1 + sum of exp(scale * (matrix - base))) over the chosen pairs of each row; 0 where there are none.

    Autograd's own way goes over the matrix eleven times for this and its gradient; this one seven times.
    """
    if torch.compiler.is_compiling():  # a compiler merges the passes by itself
        return _plain(matrix, chosen, scale, base)
    result: Tensor = _LogOnePlusSum.apply(matrix, chosen, scale, base)  # type: ignore[no-untyped-call]
    return result


def _plain(matrix: Tensor, chosen: Tensor, scale: float, base: float) -> Tensor:
    total = (scale * (matrix - base)).masked_fill(~chosen, torch.finfo(matrix.dtype).min).logsumexp(1, True)
    return torch.logaddexp(total, torch.zeros_like(total))


class _LogOnePlusSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, chosen: Tensor, scale: float, base: float) -> Tensor:
        exponent = (matrix - base).mul_(scale).masked_fill_(~chosen, torch.finfo(matrix.dtype).min)
        largest = exponent.amax(1, keepdim=True).clamp_(min=0)
        share = exponent.sub_(largest).clamp_(min=_NEGLIGIBLE).exp_()
        total = share.sum(1, keepdim=True) + (-largest).exp()
        ctx.save_for_backward(matrix, chosen, share, total)
        ctx.scale, ctx.base = scale, base
        return largest + total.log()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        matrix, chosen, share, total = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient of a gradient was asked for
            value = _plain(matrix, chosen, ctx.scale, ctx.base)
            return torch.autograd.grad(value, matrix, grad, create_graph=True)[0], None, None, None
        return share * (grad * ctx.scale / total), None, None, None


def _losses_per_anchor(
    loss: MultiSimilarityLoss, matrix: Tensor, pairs: tuple[Tensor, ...]
) -> dict[str, Any]:
    """Eq. 4 for each anchor, as PML's ``mat_based_loss`` returns it."""
    sign = 1 if loss.distance.is_inverted else -1
    anchors, positives, other_anchors, negatives = pairs
    chosen = torch.zeros_like(matrix, dtype=torch.bool)
    chosen[anchors, positives] = True
    positive = log_one_plus_sum(matrix, chosen, -sign * loss.alpha, loss.base) / loss.alpha
    chosen = torch.zeros_like(chosen)
    chosen[other_anchors, negatives] = True
    negative = log_one_plus_sum(matrix, chosen, sign * loss.beta, loss.base) / loss.beta
    indices = torch.arange(len(matrix), device=matrix.device)
    return {"loss": {"losses": positive + negative, "indices": indices, "reduction_type": "element"}}


@contextmanager
def with_few_passes(loss: nn.Module) -> Iterator[None]:
    """Within, PML's own multi-similarity loss is computed with few passes."""
    if type(loss) is not MultiSimilarityLoss:
        yield
        return
    before = loss.loss_method
    loss.loss_method = partial(_losses_per_anchor, loss)  # type: ignore[assignment]
    try:
        yield
    finally:
        loss.loss_method = before


class HardPairs(MultiSimilarityMiner):
    """Hard positives and negatives (Eq. 5-6): those of PML's miner, found without its two sorts."""

    def mine(self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor, ref_labels: Tensor) -> Any:
        """Pairs that are less similar than the nearest negative, or more than the farthest positive."""
        similarity = self.distance(embeddings, ref_emb) * (1 if self.distance.is_inverted else -1)
        negative = labels[:, None] != ref_labels
        positive = ~negative
        if embeddings is ref_emb:
            positive.fill_diagonal_(False)
        nearest = similarity.masked_fill(~negative, -torch.inf).amax(1, keepdim=True)
        farthest = similarity.masked_fill(~positive, torch.inf).amin(1, keepdim=True)
        hard_positive = positive & (similarity - self.epsilon < nearest)  # Eq. 6
        hard_negative = negative & (similarity + self.epsilon > farthest)  # Eq. 5
        return *torch.where(hard_positive), *torch.where(hard_negative)


@contextmanager
def without_sorting(miner: nn.Module) -> Iterator[None]:
    """Within, PML's own multi-similarity miner finds its pairs as ``HardPairs`` does."""
    if type(miner) is not MultiSimilarityMiner or "mine" in vars(miner):
        yield
        return
    miner.mine = partial(HardPairs.mine, miner)  # type: ignore[assignment, arg-type]
    try:
        yield
    finally:
        del miner.mine
