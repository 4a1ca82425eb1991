"""faiss indexes, where installed and asked for: exact ``flat``, approximate ``hnsw`` and ``ivf``."""

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from iaa.errors import need, unknown
from iaa.retrieval.cosine import points, unit
from iaa.retrieval.input_checks import as_vectors
from iaa.retrieval.knn import Neighbors, knn, without

KINDS = ("flat", "hnsw", "ivf")
_ROWS = 65536


def build(gallery: Tensor, *, kind: str, distance: str = "cosine", effort: int = 32) -> Any:
    """A faiss index over the gallery; ``effort``: how far an approximate search looks (efSearch, nprobe)."""
    if kind not in KINDS:
        raise unknown("index", kind, KINDS)
    if distance not in ("cosine", "euclidean"):
        raise unknown("distance", distance, ("cosine", "euclidean"))
    faiss = need("faiss", extra="faiss")
    z = as_vectors(gallery, "gallery")
    metric = faiss.METRIC_INNER_PRODUCT if distance == "cosine" else faiss.METRIC_L2
    size, dim = z.shape
    if kind == "flat":
        index = faiss.IndexFlat(dim, metric)
    elif kind == "hnsw":
        index = faiss.IndexHNSWFlat(dim, 32, metric)
        index.hnsw.efConstruction, index.hnsw.efSearch = 80, effort
    else:
        cells = max(1, min(int(4 * size**0.5), size // 39))  # faiss wants at least 39 points per cell
        coarse = faiss.IndexFlat(dim, metric)
        index = faiss.IndexIVFFlat(coarse, dim, cells, metric)
        index.cp.seed, index.cp.niter, index.nprobe = 0, 10, min(effort, cells)
        order = torch.randperm(size, generator=torch.Generator().manual_seed(0))[: 64 * cells]
        index.train(_array(z[order.sort().values], distance, "gallery"))
    for block in z.split(_ROWS):
        index.add(_array(block, distance, "gallery"))
    return index


def search(index: Any, query: Tensor, *, k: int, distance: str = "cosine") -> Neighbors:
    """The ``k`` nearest of a built index; an approximate one may find fewer: the rest has index -1."""
    if not 1 <= k <= index.ntotal:
        raise ValueError(f"k must lie in [1, {index.ntotal}], the size of the index, got {k}")
    rows = _array(query, distance)
    if len(rows) <= _ROWS:
        value, near = index.search(rows, k)
    else:
        lists = [index.search(rows[start : start + _ROWS], k) for start in range(0, len(rows), _ROWS)]
        value, near = (np.concatenate(part) for part in zip(*lists, strict=True))
    if distance == "euclidean":
        value = np.sqrt(value.clip(min=0))
    return Neighbors(torch.from_numpy(near), torch.from_numpy(value))


def measured_recall(
    index: Any, gallery: Tensor, *, k: int, distance: str = "cosine", sample: int = 1000
) -> float:
    """Share of the true ``k`` nearest that the index finds, for a seeded sample of the gallery."""
    z = as_vectors(gallery, "gallery")
    rows = torch.randperm(len(z), generator=torch.Generator().manual_seed(0))[:sample].sort().values
    lists = search(index, z[rows], k=k + 1, distance=distance), knn(z[rows], z, k=k + 1, distance=distance)
    own = rows[:, None].cpu()
    approximate, exact = (without(near, near.index == own.to(near.index), k).index for near in lists)
    return float((exact.cpu()[:, :, None] == approximate[:, None, :]).any(2).double().mean())


class Index:
    """A gallery made ready once and asked often, by cosine: exact, or one of faiss."""

    def __init__(self, gallery: Float[Tensor, "n d"], *, kind: str = "exact", effort: int = 32) -> None:
        if kind not in ("exact", *KINDS):
            raise unknown("index", kind, ("exact", *KINDS))
        self.gallery, self.kind = as_vectors(gallery, "gallery"), kind
        self._ready = points(self.gallery)[1] if kind == "exact" else None
        self._faiss = None if kind == "exact" else build(self.gallery, kind=kind, effort=effort)
        self._size = len(self.gallery)

    def __len__(self) -> int:
        return self._size

    def search(
        self,
        query: Float[Tensor, "q d"],
        *,
        top: int,
        exclude: Int64[Tensor, " q"] | Int64[Tensor, "q m"] | None = None,
    ) -> Neighbors:
        """The ``top`` nearest, or all there are if fewer; where none is left the index is -1.

        ``exclude`` names the row, or several rows, per query that must not answer, -1 for none.
        """
        if top < 1:
            raise ValueError(f"top must be 1 or more, got {top}")
        if exclude is not None and exclude.ndim == 1:
            exclude = exclude[:, None]
        k = min(top + (0 if exclude is None else exclude.shape[1]), self._size)
        exact = self._ready is not None
        near = knn(query, self._ready, k=k) if exact else search(self._faiss, query, k=k)
        if exclude is None:
            return near
        return without(near, _any_of(near.index, exclude.to(near.index.device)), top)

    def recall(self, *, top: int = 10, sample: int = 200) -> float | None:
        """Share of the true nearest that it finds, on a seeded sample of the gallery; None if that is one."""
        if len(self) < 2:
            return None
        if self._faiss is None:
            return 1.0
        return measured_recall(self._faiss, self.gallery, k=min(top, len(self) - 1), sample=sample)


def _any_of(index: Tensor, excluded: Tensor) -> Tensor:
    """Which entries of a row of ``index`` occur in the same row of ``excluded``."""
    hit = torch.zeros_like(index, dtype=torch.bool)
    for column in excluded.unbind(1):
        hit |= index == column[:, None]
    return hit


def _array(z: Tensor, distance: str, name: str = "query") -> Any:
    """What faiss is given: float32, of length 1 for cosine.

    In numpy, whose steps take a tenth of torch's time: for a single query they would add half of its search.
    """
    plain = isinstance(z, Tensor) and z.dtype == torch.float32 and z.is_cpu
    rows = z.detach().numpy() if plain else as_vectors(z, name).cpu().float().numpy()
    if rows.ndim != 2 or not rows.size:
        as_vectors(z, name)
    if distance == "cosine" and len(rows) == 1:
        length = math.sqrt(rows[0].dot(rows[0]))
        if 1e-10 < length < 1e15:  # false for NaN
            return rows * np.float32(1 / length)
    square = np.einsum("nd,nd->n", rows, rows)
    if distance == "cosine":
        if (square > 1e-20).all() and (square < 1e30).all():
            return rows / np.sqrt(square)[:, None]
        return unit(as_vectors(z, name)).cpu().numpy()
    if not np.isfinite(square).all():
        as_vectors(z, name)
        raise ValueError(
            f"{name} is too large for an index by Euclidean distance: its squares overflow float32"
        )
    return np.ascontiguousarray(rows)
