"""``BoostedLoss``: any loss and miner of pytorch-metric-learning, with synthetic candidates (Eq. 18-20)."""

import warnings
from typing import Any, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pytorch_metric_learning.losses import BaseMetricLossFunction
from torch import Tensor, nn

from iaa.boosting.candidate_pairs import Context, Tuple, distance_matrix, extend, join, mine, remember
from iaa.boosting.loss_probe import Anchors, Part, parts_of
from iaa.errors import unknown
from iaa.method.augment import IAA
from iaa.method.checks import Array, as_tensor, check_batch


class BoostedLoss(BaseMetricLossFunction):
    """A metric-learning loss that sees synthetic positives and negatives next to the original ones.

    Args:
        loss: any loss of pytorch-metric-learning that works on labels, ``CrossBatchMemory`` and
            ``MultipleLosses`` included, or a module of your own with ``forward(embeddings, labels, ...)``.
        augment: where synthetics come from: ``IAA``, or any object with its call protocol (``Augmentation``).
        miner: chooses among originals and synthetics; give it here rather than calling it yourself.
        anchors: ``"originals"`` alone, as in the paper; ``"all"`` embeddings, for losses that compare
            only within their batch or with proxies; ``"auto"`` finds out which the loss can do.
        own_copies: whether a sample and its own copies may be a positive pair. ``iaa train`` allows it for
            the triplet loss, where it helped on held-out classes; the paper, and so this class, does not.

    It equals ``loss`` until the first ``fit``, with ``copies=0``, and after ``eval()``. Attributes that it
    lacks (``distance``, ``proxies``, ``get_logits``) are those of ``loss``. After each call ``num_positives``
    and ``num_negatives`` count the pairs the loss worked on, ``synthetic_positives`` and
    ``synthetic_negatives`` are the shares with a synthetic candidate; all are 0 for a loss without pairs.
    Embeddings come un-normalised, as the model gives them: PML's distances normalise them. In a distributed
    run this goes inside: ``DistributedLossWrapper(BoostedLoss(...))``.

    >>> from pytorch_metric_learning.losses import MultiSimilarityLoss
    >>> z, labels = torch.randn(16, 8), torch.arange(16) % 4
    >>> criterion = BoostedLoss(MultiSimilarityLoss(), IAA(num_classes=4, dim=8).fit(z, labels))
    >>> criterion(z, labels) > 0
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
        nn.Module.__init__(self)  # distance, reducer and the like are those of the wrapped loss
        if anchors not in get_args(Anchors):
            raise unknown("anchors", anchors, get_args(Anchors))
        self.augment, self.miner, self.own_copies = augment, miner, own_copies
        self.parts = parts_of(loss, miner, anchors, num_classes=augment.num_classes, dim=augment.dim)
        for part in self.parts:
            if getattr(augment, "makes_classes", False) and part.has_row_per_class(augment.num_classes):
                name = type(part.loss).__name__
                raise ValueError(f"the generator makes new classes, for which {name} has no parameters")
        self._warned = False
        self._reset_counts()
        self.loss = loss  # from here on, what only the loss has is read from it and set on it

    @property
    def anchors(self) -> str:
        """What is compared with the candidates; ``"auto"`` if several losses differ in it."""
        chosen = {part.anchors for part in self.parts}
        return chosen.pop() if len(chosen) == 1 else "auto"

    @property
    def takes_pairs(self) -> bool:
        """Whether (every part of) the loss works on the pairs it is given."""
        return all(part.takes_pairs for part in self.parts)

    def forward(
        self,
        embeddings: Float[Tensor, "B D"] | Array,
        labels: Tensor | Array | None = None,
        indices_tuple: Any = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        **options: Any,
    ) -> Any:
        """The loss of a batch of un-normalised embeddings.

        Pairs of originals that you chose yourself (``indices_tuple``) hold for their synthetics as well;
        candidates that you bring (``ref_emb``) are compared with next to the synthetics.
        """
        z = as_tensor("embeddings", embeddings)
        labels = None if labels is None else as_tensor("labels", labels)
        if self.miner is not None and indices_tuple is not None:
            raise ValueError("give either a miner to BoostedLoss or indices_tuple to its call, got both")
        self._reset_counts()
        if not self._synthesizes():
            return self._plain(z, labels, indices_tuple, ref_emb, ref_labels, **options)
        if labels is None or options:
            what = "labels" if labels is None else ", ".join(options)
            raise ValueError(
                f"with synthetics BoostedLoss {'needs' if labels is None else 'takes no'} {what}"
            )
        augment = self.augment
        labels = check_batch(z, labels, num_classes=augment.num_classes, dim=augment.dim)
        synthetic, synthetic_labels = augment(z, labels)
        originals = F.normalize(z, dim=1) if augment.space == "unit" else z
        mixed = [(1.0, synthetic_labels)] if isinstance(synthetic_labels, Tensor) else synthetic_labels
        total: Any = 0.0
        for part in self.parts:
            if part.memory is not None and indices_tuple is not None:
                raise ValueError(
                    "with a memory, indices_tuple cannot be used: give CrossBatchMemory the miner"
                )
            context = remember(part.memory, originals, labels) if part.memory is not None else None
            if ref_emb is not None:
                context = as_tensor("ref_emb", ref_emb), as_tensor("ref_labels", ref_labels), None
            for share, view in mixed:
                value = self._compare(part, originals, labels, synthetic, view, indices_tuple, context)
                total = total + part.weight * share * value
        return total

    def _synthesizes(self) -> bool:
        if not self.training or self.augment.copies == 0:
            return False
        if not self.augment.ready and not self._warned:
            self._warned = True
            warnings.warn(
                "BoostedLoss trains without synthetics: call augment.fit(z, labels) or "
                "augment.update(z, labels) first, or criterion.eval() if that is what you want",
                stacklevel=4,
            )
        return self.augment.ready

    def _plain(
        self,
        z: Tensor,
        labels: Tensor | None,
        pairs: Any,
        ref: Tensor | None,
        ref_labels: Any,
        **options: Any,
    ) -> Any:
        """The wrapped loss as it is; it is given no more arguments than there are."""
        if self.miner is not None:
            pairs = self.miner(z, labels, ref, ref_labels) if ref is not None else self.miner(z, labels)
        if isinstance(pairs, tuple) and len(pairs) in (3, 4):
            self._count(pairs, len(z if ref is None else ref))
        given = (
            [z] if labels is None and pairs is None else [z, labels] if pairs is None else [z, labels, pairs]
        )
        if ref is not None:
            options |= {"ref_emb": ref, "ref_labels": ref_labels}
        return self.loss(*given, **options)

    def _compare(
        self,
        part: Part,
        z: Float[Tensor, "B D"],
        labels: Int[Tensor, "B"],
        synthetic: Float[Tensor, "S D"],
        synthetic_labels: Int[Tensor, "S"],
        given: Tuple | None,
        context: Context | None,
    ) -> Tensor:
        """One loss on originals and candidates; ``context`` stands for the originals among the candidates."""
        if context is not None and part.anchors == "all":
            raise ValueError(
                f"{type(part.loss).__name__} takes no candidates from outside its batch (ref_emb)"
            )
        itself = torch.arange(len(z), device=z.device)
        others, other_labels, origin = context or (z, labels, itself)
        if origin is None:
            origin = itself.new_full((len(others),), -1)
        copied = torch.arange(len(synthetic), device=z.device) % len(z)
        origin = torch.cat([origin, torch.full_like(copied, -1) if self.own_copies else copied])
        candidates = torch.cat([others, synthetic])
        candidate_labels = torch.cat([other_labels, synthetic_labels])
        reference: tuple[Tensor, Tensor] | None = candidates, candidate_labels
        barred = itself[:, None] == origin  # a sample with itself or with its copies
        if part.anchors == "all":
            z, labels, reference = candidates, candidate_labels, None
            barred = (origin[:, None] == origin) & (origin >= 0)
            barred.fill_diagonal_(False)  # PML leaves the diagonal out by itself
        matrix: Tensor | None = None
        if part.shares_distance and reference is not None and given is None:
            matrix = distance_matrix(part.loss.distance, z, candidates, z_first=context is None)
        pairs: Tuple | None = None
        if given is not None and context is None:
            pairs = extend(given, len(itself), len(synthetic), anchors_too=part.anchors == "all")
        elif part.miner is not None:
            pairs = mine(part.miner, z, labels, reference, barred, part.hide, matrix)
        elif part.takes_pairs:
            same = labels[:, None] == candidate_labels
            positive = (same & ~barred).fill_diagonal_(False) if reference is None else same & ~barred
            pairs = (*torch.where(positive), *torch.where(~same))
            if given is not None:
                pairs = join(given, pairs, len(others))
        elif given is not None:
            pairs = given  # weights of anchors
        if pairs is not None:
            self._count(pairs, len(others))
        return part(z, labels, pairs, reference, barred, matrix)

    def _reset_counts(self) -> None:
        self.num_positives = self.num_negatives = 0
        self.synthetic_positives = self.synthetic_negatives = 0.0

    def _count(self, pairs: Tuple, real: int) -> None:
        """Add to what was chosen; candidates from position ``real`` on are synthetic."""
        for kind, index in (("positives", pairs[1]), ("negatives", pairs[-1])):
            before, synthetic = getattr(self, f"num_{kind}"), getattr(self, f"synthetic_{kind}")
            total = before + len(index)
            number = synthetic * before + int((index >= real).sum())
            setattr(self, f"num_{kind}", total)
            setattr(self, f"synthetic_{kind}", number / max(1, total))

    def sub_loss_names(self) -> Any:
        """Those of the wrapped loss."""
        return self.loss.sub_loss_names()  # type: ignore[operator]

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or "loss" not in self.__dict__.get("_modules", {}):
                raise
            return getattr(self._modules["loss"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        loss = self.__dict__.get("_modules", {}).get("loss")
        own = name in self.__dict__ or name in self.__dict__.get("_modules", {}) or hasattr(type(self), name)
        if loss is None or own or not hasattr(loss, name):
            super().__setattr__(name, value)
        else:
            setattr(loss, name, value)

    def get_extra_state(self) -> Int[Tensor, "n 2"]:
        """Where each cross-batch memory writes next, and whether it is full: not part of PML's state."""
        memories = [part.memory for part in self.parts if part.memory is not None]
        state = [[memory.queue_idx, int(memory.has_been_filled)] for memory in memories]
        return torch.tensor(state, dtype=torch.long).reshape(-1, 2)

    def set_extra_state(self, state: Int[Tensor, "n 2"]) -> None:
        """The inverse of ``get_extra_state``."""
        memories = [part.memory for part in self.parts if part.memory is not None]
        for memory, (position, filled) in zip(memories, state.tolist(), strict=True):
            memory.queue_idx, memory.has_been_filled = position, bool(filled)
