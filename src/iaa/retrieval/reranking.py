"""k-reciprocal re-ranking (Zhong et al. 2017) on sparse neighbour lists: no N x N matrix is held."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from iaa.method.checks import check_number, check_whole
from iaa.retrieval.input_checks import as_vectors
from iaa.retrieval.knn import Neighbors, knn

_BLOCK = 256


def rerank(
    query: Tensor,
    gallery: Tensor | None = None,
    *,
    k: int,
    depth: int = 100,
    reciprocal: int = 20,
    smooth: int = 6,
    share: float = 0.3,
) -> Neighbors:
    """The ``k`` nearest after the ``depth`` nearest have been put into a new order.

    Two items are alike if their neighbours are: the new distance is ``share`` of the cosine distance and the
    rest of the Jaccard distance between ``reciprocal`` neighbour sets, each averaged over ``smooth``
    neighbours. ``value`` is 1 minus that distance. Neighbours are looked for among queries and gallery alike,
    or, without a gallery, among all others.
    """
    check_whole("reciprocal", reciprocal, least=1)
    check_whole("smooth", smooth, least=1)
    check_number("share", share, least=0, most=1)
    z = F.normalize(as_vectors(query, "query").float(), dim=1)
    start = 0
    if gallery is not None:
        start = len(z)
        z = torch.cat([z, F.normalize(as_vectors(gallery, "gallery").float(), dim=1)])
    queries, size = (start or len(z)), len(z) - start
    most = size - (gallery is None)
    if not 1 <= k <= most:
        raise ValueError(f"k must lie in [1, {most}], the neighbours a query has, got {k}")
    if depth < k:
        raise ValueError(f"depth must be at least k={k}, got {depth}")
    first = knn(z[:queries], None if gallery is None else z[start:], k=min(depth, most))
    members, weight = neighbor_sets(z, reciprocal=reciprocal, smooth=smooth)
    index, value = torch.empty_like(first.index), torch.empty_like(first.value)
    for rows in torch.arange(queries, device=z.device).split(_BLOCK):
        candidates = first.index[rows]
        overlap = _overlap(members, weight, rows, candidates + start, len(z))
        similarity = (1 - share) * overlap / (2 - overlap) + share * first.value[rows]
        value[rows], order = similarity.sort(dim=1, descending=True, stable=True)
        index[rows] = candidates.gather(1, order)
    return Neighbors(index[:, :k].contiguous(), value[:, :k].contiguous())


def neighbor_sets(
    z: Float[Tensor, "N D"], *, reciprocal: int = 20, smooth: int = 6
) -> tuple[Int64[Tensor, "N M"], Float[Tensor, "N M"]]:
    """Members of each item's neighbour set and their weights, which sum to 1; unused places have weight 0."""
    size = len(z)
    nearest = knn(z, k=min(max(reciprocal, smooth - 1), size - 1)).index
    nearest = torch.cat([torch.arange(size, device=z.device)[:, None], nearest], 1)  # itself first
    near = nearest[:, : reciprocal + 1].tolist()
    close = nearest[:, : (reciprocal + 1) // 2 + 1].tolist()
    near_sets, close_sets = [set(row) for row in near], [set(row) for row in close]
    mutual = [{j for j in near[i] if i in near_sets[j]} for i in range(size)]
    core = [{j for j in close[i] if i in close_sets[j]} for i in range(size)]
    expanded = []
    for own in mutual:
        grown = set(own)
        for j in own:
            if 3 * len(core[j] & own) > 2 * len(core[j]):  # friends that most of the set knows
                grown |= core[j]
        expanded.append(sorted(grown))
    sets, weights = _padded(expanded, z)
    return _smoothed(sets, weights, nearest[:, :smooth], size)


def _padded(sets: list[list[int]], z: Tensor) -> tuple[Tensor, Tensor]:
    """Sets as a matrix with the weight exp(-squared distance) of every member, normalised."""
    width = max(len(row) for row in sets)
    members = torch.tensor([row + [-1] * (width - len(row)) for row in sets], device=z.device)
    weight = torch.empty(members.shape, device=z.device)
    for rows in torch.arange(len(z), device=z.device).split(_BLOCK):
        similarity = torch.einsum("nd,nmd->nm", z[rows], z[members[rows].clamp(min=0)])
        weight[rows] = (2 * similarity - 2).exp().where(members[rows] >= 0, 0)
    return members.clamp(min=0), weight / weight.sum(1, keepdim=True)


def _smoothed(members: Tensor, weight: Tensor, friends: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The mean of the sets of an item's nearest, itself included; equal members are put together."""
    if friends.shape[1] == 1:
        return members, weight
    all_members, all_weights = [], []
    for rows in friends.split(_BLOCK):
        dense = weight.new_zeros(len(rows), size)
        dense.scatter_add_(1, members[rows].flatten(1), weight[rows].flatten(1) / friends.shape[1])
        width = int((dense > 0).sum(1).max())
        value, index = dense.topk(width, dim=1)
        all_members.append(index)
        all_weights.append(value)
    width = max(part.shape[1] for part in all_members)
    pad = [(0, width - part.shape[1]) for part in all_members]
    return (
        torch.cat([F.pad(part, size) for part, size in zip(all_members, pad, strict=True)]),
        torch.cat([F.pad(part, size) for part, size in zip(all_weights, pad, strict=True)]),
    )


def _overlap(members: Tensor, weight: Tensor, rows: Tensor, candidates: Tensor, size: int) -> Tensor:
    """Sum of the smaller weights of both sets, for each query and each of its candidates."""
    dense = weight.new_zeros(len(rows), size).scatter_add_(1, members[rows], weight[rows])
    overlap = weight.new_empty(candidates.shape)
    for position, own in enumerate(candidates):
        overlap[position] = torch.minimum(dense[position][members[own]], weight[own]).sum(1)
    return overlap
