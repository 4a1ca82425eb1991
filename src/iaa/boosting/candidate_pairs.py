"""Which pairs a boosted loss works on: what a miner may choose, what a caller chose, what a memory holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pytorch_metric_learning.distances import (
    BaseDistance,
    CosineSimilarity,
    DotProductSimilarity,
    LpDistance,
    SNRDistance,
)
from pytorch_metric_learning.losses import CrossBatchMemory
from torch import Tensor, nn

from iaa.boosting.cosine_matrix import cosine_matrix
from iaa.boosting.multi_similarity import without_sorting

KNOWN = (CosineSimilarity, DotProductSimilarity, LpDistance, SNRDistance)
Hide = Literal["near", "far", None]
Tuple = tuple[Tensor, ...]
"""PML's indices tuple: (anchor, positive, anchor, negative) or (anchor, positive, negative)."""
Context = tuple[Tensor, Tensor, Tensor | None]
"""Real candidates, their labels, and for each its position in the batch, -1 if it has none."""


def hidden(matrix: Tensor, barred: Bool[Tensor, "A R"], hide: Hide, *, is_inverted: bool) -> Tensor:
    """Distances in which barred pairs are nearest of all, or farthest of all.

    A miner of hard positives passes over the nearest, one of easy positives over the farthest. To filter what
    they chose would not do: the easiest positive is always the sample itself, and nothing would remain.
    """
    limit = torch.finfo(matrix.dtype).max / 2  # PML itself marks what to ignore by the full limit
    return matrix.masked_fill(barred, limit if (hide == "near") == is_inverted else -limit)


@contextmanager
def distances_shown(
    module: nn.Module, barred: Bool[Tensor, "A R"], hide: Hide, matrix: Tensor | None = None
) -> Iterator[None]:
    """Within, the distances of ``module`` hide barred pairs; ``matrix`` is their result if it is known."""

    def show(distance: BaseDistance, query: Tensor, reference: Tensor | None = None) -> Tensor:
        rows = len(query), len(query if reference is None else reference)
        if matrix is not None and rows == barred.shape:
            result = matrix
        else:
            result = type(distance).forward(distance, query, reference)
        hides = rows == barred.shape and hide is not None
        return hidden(result, barred, hide, is_inverted=distance.is_inverted) if hides else result

    shown = hide is not None or matrix is not None
    distances = {part for part in module.modules() if isinstance(part, BaseDistance)} if shown else set()
    try:
        for distance in distances:
            distance.forward = partial(show, distance)
        yield
    finally:
        for distance in distances:
            del distance.forward


def distance_matrix(
    distance: BaseDistance, z: Float[Tensor, "A D"], candidates: Float[Tensor, "R D"], *, z_first: bool
) -> Float[Tensor, "A R"]:
    """What ``distance(z, candidates)`` gives; if candidates begin with ``z``, each is normalised once."""
    if z_first and _is_cosine(distance) and not torch.is_autocast_enabled(candidates.device.type):
        return cosine_matrix(candidates, len(z))
    normalized = distance.maybe_normalize(candidates)
    query = normalized[: len(z)] if z_first else distance.maybe_normalize(z)
    matrix: Tensor = distance.compute_mat(query, normalized)
    return matrix if distance.power == 1 else matrix**distance.power


def _is_cosine(distance: BaseDistance) -> bool:
    plain = type(distance) is CosineSimilarity and distance.normalize_embeddings
    return plain and distance.p == 2 and distance.power == 1


def same_distance(loss: nn.Module, miner: nn.Module) -> bool:
    """Whether a loss and a miner each compute one matrix of the same distances, so that one is enough."""
    first, second = ([d for d in part.modules() if isinstance(d, BaseDistance)] for part in (loss, miner))
    if len(first) != 1 or len(second) != 1 or type(first[0]) is not type(second[0]):
        return False
    keys = ("normalize_embeddings", "p", "power", "is_inverted")
    plain = type(first[0]) in KNOWN and not first[0].collect_stats
    return plain and all(getattr(first[0], k) == getattr(second[0], k) for k in keys)


def mine(
    miner: nn.Module,
    z: Float[Tensor, "A D"],
    labels: Int[Tensor, "A"],
    reference: tuple[Tensor, Tensor] | None,
    barred: Bool[Tensor, "A R"],
    hide: Hide,
    matrix: Tensor | None = None,
) -> Tuple:
    """What the miner chooses when barred pairs, which PML takes for positives, are hidden from it."""
    known = None if matrix is None else matrix.detach().clone()  # a miner may write into it
    with distances_shown(miner, barred, hide, known), without_sorting(miner):
        chosen: Tuple = miner(z, labels, *(reference or ()))
    allowed = ~barred[chosen[0], chosen[1]]
    if len(chosen) == 3:
        return tuple(index[allowed] for index in chosen)
    return chosen[0][allowed], chosen[1][allowed], chosen[2], chosen[3]


def extend(given: Tuple, batch: int, synthetics: int, *, anchors_too: bool) -> Tuple:
    """Pairs or triplets of originals, and the same ones with the copies of each in its place."""
    if len(given) not in (3, 4):
        raise ValueError(f"indices_tuple must hold 3 or 4 tensors, got {len(given)}")
    is_anchor = (True, False, False) if len(given) == 3 else (True, False, True, False)
    copies = range(synthetics // batch + 1)
    return tuple(
        torch.cat([index + (copy * batch if anchors_too or not anchor else 0) for copy in copies])
        for index, anchor in zip(given, is_anchor, strict=True)
    )


def join(given: Tuple, pairs: Tuple, real: int) -> Tuple:
    """Pairs with real candidates as given, and those of all pairs whose candidate is synthetic."""
    if len(given) != 4:
        raise ValueError(f"with ref_emb, indices_tuple must hold pairs (4 tensors), got {len(given)} tensors")
    a1, p, a2, n = pairs
    more = a1[p >= real], p[p >= real], a2[n >= real], n[n >= real]
    return tuple(torch.cat(both) for both in zip(given, more, strict=True))


def remember(memory: CrossBatchMemory, z: Float[Tensor, "B D"], labels: Int[Tensor, "B"]) -> Context:
    """Put the originals of a batch into the memory; what it holds then, and which of it is the batch."""
    if len(z) > memory.memory_size:
        raise ValueError(f"memory_size must be at least the batch size {len(z)}, got {memory.memory_size}")
    memory.embedding_memory, memory.label_memory = (
        memory.embedding_memory.to(z),
        memory.label_memory.to(labels),
    )
    memory.add_to_memory(z, labels, len(z))
    filled = memory.memory_size if memory.has_been_filled else memory.queue_idx
    origin = labels.new_full((memory.memory_size,), -1)
    origin[memory.curr_batch_idx] = torch.arange(len(z), device=z.device)
    return memory.embedding_memory[:filled], memory.label_memory[:filled], origin[:filled]
