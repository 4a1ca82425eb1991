"""What a loss or a miner can take, found out from its signature and from six points on a circle."""

import copy
import inspect
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from pytorch_metric_learning.losses import CrossBatchMemory, MultipleLosses
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper
from torch import Tensor, nn

from iaa.boosting.candidate_pairs import Hide, Tuple, distances_shown, same_distance
from iaa.boosting.multi_similarity import with_few_passes

Anchors = Literal["auto", "originals", "all"]

LABELS = torch.tensor([0, 0, 0, 0, 1, 1])
PAIRS = tuple(map(torch.tensor, ([0, 2], [1, 3], [0, 1, 2, 3], [4, 5, 4, 5])))
OTHER_PAIRS = tuple(map(torch.tensor, ([0, 1], [2, 3], [0, 1, 2, 3], [5, 4, 5, 4])))
"""Each index as often as in ``PAIRS``: to a loss that only weighs samples by that, nothing changes."""
ANGLES = (
    (0.0, math.pi, 0.0, math.pi, 0.0, math.pi),
    (0.05, 3.0, 0.1, 3.1, 0.0, 3.05),
    (0.0, 0.5, 0.9, 1.3, 0.1, 0.7),
)
"""In the first, positives of ``PAIRS`` are as far and negatives as near as can be, and the reverse in
``OTHER_PAIRS``, so that no margin hides that a loss works on pairs. Some losses are finite in others only."""


@dataclass(frozen=True)
class Part:
    """A loss with its miner and weight, and what is known about them."""

    loss: nn.Module
    miner: nn.Module | None
    weight: float
    anchors: Literal["originals", "all"]
    takes_pairs: bool
    takes_indices: bool
    by_class: bool
    """Whether the order of the batch matters to it, as to SmoothAP, which wants class after class."""
    hide: Hide
    """As what barred pairs are shown to the miner, so that it does not choose them."""
    shares_distance: bool = False
    """Whether loss and miner look at the same distances, so that they are computed once."""
    memory: CrossBatchMemory | None = None
    """The memory that the loss is compared with."""

    def has_row_per_class(self, num_classes: int) -> bool:
        """Whether the loss learns something for every class, such as proxies."""
        return any(num_classes in parameter.shape for parameter in self.loss.parameters())

    def __call__(
        self,
        z: Float[Tensor, "A D"],
        labels: Tensor,
        pairs: Tuple | None,
        reference: tuple[Tensor, Tensor] | None,
        barred: Bool[Tensor, "A R"],
        matrix: Tensor | None = None,
    ) -> Tensor:
        """The loss; candidates from outside the batch are ``reference``, known distances ``matrix``."""
        if reference is not None:
            hide: Hide = None if self.takes_pairs else "far"
            with distances_shown(self.loss, barred, hide, matrix), with_few_passes(self.loss):
                value: Tensor = self.loss(z, labels, pairs, ref_emb=reference[0], ref_labels=reference[1])
            return value
        if self.by_class:
            order = labels.argsort(stable=True)
            position = order.argsort()
            z, labels = z[order], labels[order]
            pairs = None if pairs is None else tuple(position[index] for index in pairs)
        value = self.loss(z, labels, pairs) if self.takes_indices else self.loss(z, labels)
        return value


def parts_of(
    loss: nn.Module, miner: nn.Module | None, anchors: Anchors, *, num_classes: int, dim: int
) -> tuple[Part, ...]:
    """The losses within a loss: those of ``MultipleLosses``, that of ``CrossBatchMemory``, or itself."""
    if isinstance(loss, DistributedLossWrapper):
        raise ValueError(
            "nest the other way round: DistributedLossWrapper(BoostedLoss(loss, augment, miner))"
        )
    if isinstance(loss, MultipleLosses):
        keys = list(loss.losses.keys()) if loss.is_dict else range(len(loss.losses))
        if loss.miners is not None and miner is not None:
            raise ValueError("MultipleLosses has miners of its own: give BoostedLoss none")
        parts: list[Part] = []
        for key in keys:
            own = miner
            if loss.miners is not None:
                own = loss.miners[key] if not loss.is_dict or key in loss.miners else None
            for part in parts_of(loss.losses[key], own, anchors, num_classes=num_classes, dim=dim):
                parts.append(replace(part, weight=part.weight * loss.weights[key]))
        return tuple(parts)
    if isinstance(loss, CrossBatchMemory):
        if miner is not None or anchors == "all":
            what = "the miner belongs to CrossBatchMemory: CrossBatchMemory(loss, ..., miner=miner)"
            raise ValueError(
                what if miner is not None else "with CrossBatchMemory anchors must be 'originals'"
            )
        (part,) = parts_of(loss.loss, loss.miner, "originals", num_classes=num_classes, dim=dim)
        return (replace(part, memory=loss),)
    names = _positional(loss)
    if len(names) < 2 or names[1] == "ref_emb":
        raise TypeError(
            f"{type(loss).__name__} takes no labels, which synthetics need: its forward has {names}"
        )
    takes_indices = len(names) > 2
    if miner is not None and not takes_indices:
        raise ValueError(f"{type(loss).__name__} takes no indices, so a miner would have no effect")
    probe = _Probe(loss, num_classes, dim)
    takes_pairs = takes_indices and probe.takes_pairs()
    if anchors == "auto":
        takes_candidates = "ref_emb" in names and probe.takes_candidates(takes_pairs)
        anchors = "originals" if takes_candidates else "all"
    elif anchors == "originals" and "ref_emb" not in names:
        raise ValueError(f"{type(loss).__name__} takes no ref_emb: anchors must be 'all' or 'auto'")
    hide = _hiding(miner, dim) if miner is not None else None
    shares = takes_pairs and miner is not None and same_distance(loss, miner)
    by_class = probe.depends_on_order()
    return (Part(loss, miner, 1.0, anchors, takes_pairs, takes_indices, by_class, hide, shares),)


class _Probe:
    """A copy of a loss that is called by example; what it refuses with an exception has no value."""

    def __init__(self, loss: nn.Module, num_classes: int, dim: int) -> None:
        self.loss, self.dim = copy.deepcopy(loss).cpu().float(), dim
        self.labels = LABELS.clamp(max=num_classes - 1)

    def value(self, z: Tensor, labels: Tensor, *arguments: Any) -> float:
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                return float(copy.deepcopy(self.loss)(z, labels, *arguments))
        except Exception:  # whatever it is, the loss does not take these arguments
            return math.nan

    def takes_pairs(self) -> bool:
        """Whether pairing the same samples otherwise changes the value."""
        batches = [(on_circle(angles, self.dim), self.labels) for angles in ANGLES]
        return any(_differ(self.value(*b, PAIRS), self.value(*b, OTHER_PAIRS)) for b in batches)

    def takes_candidates(self, takes_pairs: bool) -> bool:
        """Whether other candidates change the value."""
        a1, p, a2, n = PAIRS
        pairs = (a1, p + 6, a2, n + 6) if takes_pairs else None
        for angles in ANGLES:
            z = on_circle(angles, self.dim)
            turned = on_circle(tuple(angle + math.pi for angle in angles), self.dim)
            values = [
                self.value(z, self.labels, pairs, torch.cat([z, outside]), self.labels.repeat(2))
                for outside in (z, turned, on_circle(tuple(angle + 1 for angle in angles), self.dim))
            ]
            if _differ(values[0], values[1]) or _differ(values[0], values[2]):
                return True
        return False

    def depends_on_order(self) -> bool:
        """Whether a batch of two classes has another value in another order."""
        z, labels = on_circle(ANGLES[2], self.dim)[:4], self.labels[[0, 0, 4, 4]]
        order = torch.tensor([0, 2, 1, 3])
        return _differ(self.value(z, labels), self.value(z[order], labels[order]))


def _hiding(miner: nn.Module, dim: int) -> Hide:
    """As what a miner passes over pairs of a sample with itself or its copy; None if it sees only labels."""
    z = on_circle(ANGLES[2], dim)
    candidates = torch.cat([z, on_circle(tuple(angle + 0.3 for angle in ANGLES[2]), dim)])
    barred = torch.arange(6)[:, None] == torch.arange(12) % 6
    for hide in ("near", "far"):
        try:
            with (
                torch.random.fork_rng(devices=[]),
                distances_shown(asked := copy.deepcopy(miner).cpu(), barred, hide),
            ):
                chosen = asked(z, LABELS, candidates, LABELS.repeat(2))
            if not barred[chosen[0], chosen[1]].any():
                return hide
        except Exception:  # it takes no such example: what it chooses is filtered
            return None
    return None


def on_circle(angles: tuple[float, ...], dim: int) -> Float[Tensor, "n D"]:
    """Unit vectors in the plane of the first and the last dimension."""
    angle = torch.tensor(angles)
    z = torch.zeros(len(angles), dim)
    z[:, 0] = angle.cos()
    z[:, -1] += angle.sin()
    return z


def _positional(loss: nn.Module) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, p in inspect.signature(loss.forward).parameters.items() if p.kind in kinds]


def _differ(first: float, second: float) -> bool:
    return abs(first - second) > 1e-6 * abs(first)  # false if either is not a number
