"""``BoostedLoss``: any loss and miner of pytorch-metric-learning, with synthetic candidates (Eq. 18-20)."""

import copy
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Integer
from pytorch_metric_learning.distances import BaseDistance
from pytorch_metric_learning.losses import BaseMetricLossFunction
from torch import Tensor, nn

from iaa.errors import unknown
from iaa.method.augment import IAA
from iaa.method.checks import check_batch

Anchors = Literal["auto", "originals", "all"]
Chosen = tuple[Tensor, ...]
"""What PML calls an indices tuple: (anchor, positive, anchor, negative) or (anchor, positive, negative)."""


class BoostedLoss(BaseMetricLossFunction):
    """A metric-learning loss that sees synthetic positives and negatives beside the original ones.

    Args:
        loss: any loss of pytorch-metric-learning that works on labels, or one's own of that kind.
        augment: where synthetics come from. Until its first ``fit``, and with ``copies=0``, this is ``loss``.
        miner: chooses among originals and synthetics; give it here rather than calling it yourself.
        anchors: ``"originals"`` alone, as in the paper; ``"all"`` embeddings, for losses that compare none
            but their own batch (proxies, classification); ``"auto"`` asks the loss which.
        own_copies: whether a sample and its own copies may be a positive pair.

    After each call ``num_positives`` and ``num_negatives`` tell how many pairs the loss worked on, and
    ``synthetic_positives`` and ``synthetic_negatives`` their share with a synthetic candidate; all are 0
    for a loss that chooses no pairs. Embeddings come un-normalised, as the model gives them: PML's distances
    normalise originals and synthetics alike.

    >>> from pytorch_metric_learning.losses import MultiSimilarityLoss
    >>> criterion = BoostedLoss(MultiSimilarityLoss(), IAA(num_classes=4, dim=8))
    >>> z, labels = torch.randn(16, 8), torch.arange(16) % 4
    >>> loss = criterion(z, labels)  # the plain loss
    >>> criterion.augment.fit(z, labels) and criterion(z, labels) > 0
    tensor(True)
    >>> criterion.num_positives, criterion.synthetic_positives  # 12 of 15 others, 3 of them real
    (192, 0.75)
    """

    def __init__(
        self,
        loss: nn.Module,
        augment: IAA,
        miner: nn.Module | None = None,
        anchors: Anchors = "auto",
        own_copies: bool = False,
    ) -> None:
        super().__init__()
        if anchors not in get_args(Anchors):
            raise unknown("anchors", anchors, get_args(Anchors))
        self.loss, self.augment, self.miner, self.own_copies = loss, augment, miner, own_copies
        self.takes_pairs, takes_candidates = _ask(loss, augment)
        self.anchors = anchors if anchors != "auto" else "originals" if takes_candidates else "all"
        self._disguise: Literal["easy", "hard", None] = "easy"
        self._tell(None, 1)

    def forward(
        self,
        embeddings: Float[Tensor, "B D"],
        labels: Integer[Tensor, "B"],
        indices_tuple: None = None,
        ref_emb: None = None,
        ref_labels: None = None,
    ) -> Float[Tensor, ""]:
        """The loss of a batch of un-normalised embeddings."""
        if not (indices_tuple is ref_emb is ref_labels is None):
            raise ValueError(
                "BoostedLoss builds its own pairs and candidates: give it the miner, not indices"
            )
        augment, z = self.augment, embeddings
        labels = check_batch(z, labels, num_classes=augment.num_classes, dim=augment.dim)
        if not augment.ready or augment.copies == 0:
            chosen = self.miner(z, labels) if self.miner else None
            self._tell(chosen, len(z))
            return self.loss(z, labels, chosen)
        synthetic, synthetic_labels = augment(z, labels)
        originals = F.normalize(z, dim=1) if augment.space == "unit" else z
        everything = torch.cat([originals, synthetic])
        all_labels = torch.cat([labels, synthetic_labels])
        if self.anchors == "all":
            return self._compare(everything, all_labels, None, None, len(z))
        return self._compare(originals, labels, everything, all_labels, len(z))  # Eq. 18, 19, 20

    def _compare(
        self,
        z: Tensor,
        labels: Tensor,
        candidates: Tensor | None,
        candidate_labels: Tensor | None,
        batch: int,
    ) -> Tensor:
        reference = labels if candidate_labels is None else candidate_labels
        barred = self._barred(len(z), len(reference), batch, z.device)
        chosen: Chosen | None = None
        if self.miner is not None:
            chosen = self._mine(z, labels, candidates, candidate_labels, barred)
        elif self.takes_pairs:
            same = labels[:, None] == reference
            diagonal = torch.eye(*same.shape, dtype=torch.bool, device=z.device)
            chosen = (*torch.where(same & ~barred & ~diagonal), *torch.where(~same))
        self._tell(chosen, batch)
        with ExitStack() as hidden:
            if not self.takes_pairs and candidates is not None:
                hidden.enter_context(_disguised(self.loss, barred, as_easy=False))
            return self.loss(z, labels, chosen, candidates, candidate_labels)

    def _barred(self, anchors: int, candidates: int, batch: int, device: torch.device) -> Bool[Tensor, "A R"]:
        """Pairs of an embedding with itself, and of a sample with its copies unless these are allowed."""
        period = candidates if self.own_copies else batch
        row, column = torch.arange(anchors, device=device), torch.arange(candidates, device=device)
        barred = row[:, None] % period == column % period
        return (
            barred.fill_diagonal_(False) if anchors == candidates else barred
        )  # there PML minds the diagonal

    def _mine(
        self,
        z: Tensor,
        labels: Tensor,
        candidates: Tensor | None,
        candidate_labels: Tensor | None,
        barred: Tensor,
    ) -> Chosen:
        """What the miner chooses when barred pairs are hidden from it.

        PML's miners take them for positives. A miner of hard pairs overlooks them if they look as easy as can
        be, one of easy pairs if they look hard; from one that looks at labels alone they are taken away.
        """
        assert self.miner is not None
        while True:
            with ExitStack() as hidden:
                if self._disguise is not None:
                    hidden.enter_context(_disguised(self.miner, barred, as_easy=self._disguise == "easy"))
                chosen: Chosen = self.miner(z, labels, candidates, candidate_labels)
            wrong = barred[chosen[0], chosen[1]]
            if self._disguise is None or not wrong.any():
                break
            same = labels[:, None] == (labels if candidate_labels is None else candidate_labels)
            itself = 1 if candidates is None else 0
            has_choice = (same & ~barred).sum(1) > itself
            if not (wrong & has_choice[chosen[0]]).any():
                break  # there was nothing else to choose
            self._disguise = "hard" if self._disguise == "easy" else None  # it was not fooled
        if len(chosen) == 3:
            return tuple(index[~wrong] for index in chosen)
        return chosen[0][~wrong], chosen[1][~wrong], chosen[2], chosen[3]

    def _tell(self, chosen: Chosen | None, batch: int) -> None:
        positives = torch.empty(0) if chosen is None else chosen[1]
        negatives = torch.empty(0) if chosen is None else chosen[-1]
        self.num_positives, self.num_negatives = len(positives), len(negatives)
        self.synthetic_positives = int((positives >= batch).sum()) / max(1, len(positives))
        self.synthetic_negatives = int((negatives >= batch).sum()) / max(1, len(negatives))


@contextmanager
def _disguised(module: nn.Module, barred: Bool[Tensor, "A R"], *, as_easy: bool) -> Iterator[None]:
    """Within, the module's distances show barred pairs as closest of all, or as farthest of all."""

    def fill(distance: Any, _: Any, matrix: Tensor) -> Tensor:
        if matrix.shape != barred.shape:
            return matrix
        limit = torch.finfo(matrix.dtype).max / 2  # PML itself marks what to ignore by the full limit
        return matrix.masked_fill(barred, limit if as_easy == distance.is_inverted else -limit)

    distances = {part for part in module.modules() if isinstance(part, BaseDistance)}
    hooks = [distance.register_forward_hook(fill) for distance in distances]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _ask(loss: nn.Module, augment: IAA) -> tuple[bool, bool]:
    """Whether a loss works on the pairs it is given, and whether it takes candidates from outside the batch.

    It is asked by example: pairs matter if the same indices paired otherwise change its value, candidates if
    others change it. Losses that refuse either say so by an exception. Samples near each other and samples
    far apart are tried, since a margin can hide either.
    """
    loss = copy.deepcopy(loss).cpu().float()
    labels = torch.tensor([0, 0, 0, 0, 1, 1]).clamp(max=augment.num_classes - 1)

    def on_circle(spread: float, turn: float = 0.0) -> Tensor:
        angle = torch.tensor([0.0, 0.5, 0.9, 1.3, 0.1, 0.7]) * spread + turn
        z = torch.zeros(6, augment.dim)
        z[:, 0] = angle.cos()
        z[:, -1] += angle.sin()
        return z

    def value(spread: float, *arguments: Any) -> float:
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                return float(loss(on_circle(spread), labels, *arguments))
        except Exception:  # whatever it is, the loss does not take these arguments
            return math.nan

    def differ(first: float, second: float) -> bool:
        return abs(first - second) > 1e-6 * abs(first)  # false if either is not a number

    def outside(spread: float, turn: float) -> float:
        away = (pairs[0], pairs[1] + 6, pairs[2], pairs[3] + 6) if takes_pairs else None
        return value(spread, away, on_circle(spread, turn).repeat(2, 1), labels.repeat(2))

    index = torch.tensor
    pairs = index([0, 2]), index([1, 3]), index([0, 1, 2, 3]), index([4, 5, 4, 5])
    paired_otherwise = index([0, 1]), index([2, 3]), index([0, 1, 2, 3]), index([5, 4, 5, 4])
    spreads = 1.0, 2.2
    takes_pairs = any(differ(value(spread, pairs), value(spread, paired_otherwise)) for spread in spreads)
    takes_candidates = any(differ(outside(spread, 0.02), outside(spread, 0.03)) for spread in spreads)
    return takes_pairs, takes_candidates
