"""The multi-similarity miner without its two sorts per row."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from pytorch_metric_learning.miners import MultiSimilarityMiner
from torch import Tensor, nn


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
