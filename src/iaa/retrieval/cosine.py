"""How near two embeddings are: quickly in float32 with a known error, exactly in float64 where it matters.

Similarities are compared on a grid of 2**-32 (see ``Points.key``). A float32 product only decides what its
error bound allows; every closer call goes to the grid. So the order of neighbours depends neither on block
sizes and threads nor on the device, and equal vectors tie exactly, whatever block they were multiplied in.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from iaa.errors import unknown

GRID = 2**32
"""Steps of the similarity grid per unit: coarser than float64's rounding noise, finer than float32."""
DISTANCES = ("cosine", "euclidean")
_PAIRS = 256  # pairs per step of `key`: its temporaries stay inside the cache
_ROWS = 256
_PART = 4096  # rows whose norms are computed at once: torch makes a float64 copy of them


@dataclass(frozen=True)
class Points:
    """Embeddings ready to be compared; similarity is the cosine, or ``-|x - y|² / 2`` scaled into [-1, 0].

    ``raw`` is the caller's own tensor (it may be memory-mapped); blocks are scaled as they are needed, so
    that nothing of the size of the whole set is copied.
    """

    raw: Float[Tensor, "n d"]
    scale: Float64[Tensor, " n"]
    centre: Float64[Tensor, " d"] | None
    """Euclidean only: subtracted before the fast product, which far from the origin loses small distances."""

    extreme: bool = False
    """Norms so small or large that scaling in float32 would lose digits."""

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def device(self) -> torch.device:
        """Where the work happens: where the embeddings are."""
        return self.raw.device

    @property
    def error(self) -> float:
        """Bound on what a float32 product of two blocks is off by: one rounding per term, and a few more."""
        return (self.raw.shape[1] + 16) * 2.0**-24

    def block(self, rows: Int64[Tensor, " b"], dtype: torch.dtype = torch.float32) -> Float[Tensor, "b d"]:
        """Scaled rows, whose products are similarities (less ``half`` of both, if Euclidean)."""
        block = self.raw.index_select(0, rows)  # several times as fast as self.raw[rows]
        wide = block.dtype == torch.float64 or self.extreme
        block = block.to(torch.float64 if wide else dtype)
        if self.centre is not None:
            block.sub_(self.centre.to(block.dtype))
        return block.mul_(self.scale[rows].to(block.dtype)[:, None]).to(dtype)

    def products(
        self, block: Float[Tensor, "b d"], items: slice | Int64[Tensor, " c"], out: Tensor | None = None
    ) -> Float[Tensor, "b c"]:
        """Similarities of scaled rows with some of these, scaled afterwards: a slice is not copied."""
        if self.centre is None and not self.extreme and self.raw.dtype == torch.float32:
            return torch.mm(block, self.raw[items].T, out=out).mul_(self.scale[items].float())
        other = self.block(torch.arange(len(self), device=self.device)[items])
        product = torch.mm(block, other.T, out=out)
        if self.centre is not None:
            product -= other.square().sum(1) / 2
            product -= block.square().sum(1)[:, None] / 2
        return product

    def key(
        self, rows: Int64[Tensor, " p"], other: "Points", columns: Int64[Tensor, " p"]
    ) -> Int64[Tensor, " p"]:
        """Similarity of each pair on the grid, from a float64 sum that is the same wherever it is met."""
        out = torch.empty(len(rows), dtype=torch.int64, device=self.device)
        for start in range(0, len(rows), _PAIRS):
            part = slice(start, start + _PAIRS)
            x = self.raw.index_select(0, rows[part]).double()
            y = other.raw.index_select(0, columns[part]).double()
            if self.centre is None:
                value = x.mul_(y).sum(1) * (self.scale[rows[part]] * other.scale[columns[part]])
            else:
                value = x.sub_(y).square_().sum(1) * (self.scale[rows[part]].square() * -0.5)
            out[part] = (value * GRID).round_().long()
        return out

    def keys(
        self, rows: Int64[Tensor, " b"], other: "Points", columns: Int64[Tensor, " c"]
    ) -> Int64[Tensor, "b c"]:
        """``key`` of all rows with all columns: a float64 product, and pairs where rounding could matter."""
        x, y = self.block(rows, torch.float64), other.block(columns, torch.float64)
        value = x @ y.T
        if self.centre is not None:
            value -= (x.square().sum(1)[:, None] + y.square().sum(1)) / 2
        value *= GRID
        key = value.round()
        noise = (self.raw.shape[1] + 16) * 2.0**-52 * GRID
        row, column = ((value - key).abs_() > 0.5 - noise).nonzero(as_tuple=True)
        key = key.long()
        key[row, column] = self.key(rows[row], other, columns[column])
        return key


def points(
    z: Float[Tensor, "n d"], *, distance: str = "cosine", other: Float[Tensor, "m d"] | None = None
) -> tuple[Points, Points]:
    """Prepare queries and gallery (``other``; the same object when it is None, which means leave-one-out)."""
    if distance not in DISTANCES:
        raise unknown("distance", distance, DISTANCES)
    sets = [z] if other is None else [z, other]
    centre, radius = None, 0.0
    if distance == "euclidean":
        total = sum(block.sum(0) for side in sets for block in _blocks(side))
        centre = torch.as_tensor(total) / sum(map(len, sets))
        radius = max(float((block - centre).norm(dim=1).max()) for side in sets for block in _blocks(side))
    prepared = []
    for side in sets:
        scale = _scale(side, radius, distance)
        used = scale[scale > 0]
        extreme = bool((used > 2.0**80).any()) or bool((used < 2.0**-80).any())
        prepared.append(Points(side, scale, centre, extreme))
    return prepared[0], prepared[-1]


def _scale(z: Tensor, radius: float, distance: str) -> Tensor:
    if distance == "euclidean":
        # |x - y|² / 2 is at most 2 radius², so this brings it into [0, 1]
        return torch.full((len(z),), 1 / (2**0.5 * radius) if radius else 1.0, dtype=torch.float64).to(
            z.device
        )
    norms = torch.cat([torch.linalg.vector_norm(part, dim=1, dtype=torch.float64) for part in z.split(_PART)])
    if not bool(((norms > 1e-150) & (norms < 1e150) | (norms == 0)).all()):
        raise ValueError("z must have norms between 1e-150 and 1e150: their squares leave float64")
    return torch.where(norms > 0, 1 / norms, 0.0)  # a zero vector has similarity 0 to everything


def unit(z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Rows of length 1 in float32, even where squares of ``z`` leave its range; zeros stay zeros."""
    reach = z.abs().amax(1)
    wide = bool((((reach > 0) & (reach < 1e-10)) | (reach > 1e15)).any())
    rows = z.double() if wide else z.float()
    return F.normalize(rows, dim=1, eps=1e-150 if wide else 1e-12).float()


def _blocks(z: Tensor) -> Iterator[Tensor]:
    return (block.double() for block in z.split(_ROWS))


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Real float32 products: no TF32, no bfloat16, no autocast, else the error bound would not hold."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
