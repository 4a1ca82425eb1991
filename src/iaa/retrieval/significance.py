"""How sure a mean is, and whether one set of embeddings is really better than another on the same data."""

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

DRAWS = 2000


def interval(
    values: Float64[Tensor, " q"],
    classes: Int64[Tensor, " q"] | None = None,
    *,
    level: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean over queries, or over whole ``classes`` if they are given.

    Queries of one class share its difficulty, so the interval over classes is the honest one for new classes.
    """
    means = _means(*_clusters(values, classes), draws, seed)
    low, high = means.quantile(torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)).tolist()
    return low, high


@dataclass(frozen=True)
class Difference:
    """Mean of B less mean of A over the same queries, its interval over classes, and two p-values."""

    mean: float
    low: float
    high: float
    p_queries: float
    p_classes: float


def paired(
    a: Float64[Tensor, " q"],
    b: Float64[Tensor, " q"],
    classes: Int64[Tensor, " q"],
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Difference:
    """Is B better than A? Two-sided sign-flip permutation tests, flipping single queries and whole classes.

    Under the null hypothesis A and B are exchangeable, so the sign of every difference is a coin's.
    """
    difference = b - a
    low, high = interval(difference, classes, draws=draws, seed=seed)
    p = [_sign_flip(_clusters(difference, by)[0], draws, seed) for by in (None, classes)]
    return Difference(float(difference.mean()), low, high, *p)


def _clusters(values: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
    """Sum and size of each unit that is drawn as one."""
    if classes is None:
        return values, torch.ones_like(values)
    _, member = classes.unique(return_inverse=True)
    sums = torch.zeros(int(member.max()) + 1, dtype=torch.float64)
    return sums.index_add(0, member, values), member.bincount().double()


def _means(sums: Tensor, sizes: Tensor, draws: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    means = torch.empty(draws, dtype=torch.float64)
    for draw in range(draws):  # one draw at a time: memory stays that of the values
        chosen = torch.randint(len(sums), (len(sums),), generator=generator)
        means[draw] = sums[chosen].sum() / sizes[chosen].sum()
    return means


def _sign_flip(sums: Tensor, draws: int, seed: int) -> float:
    """Share of sign flips at least as far from zero as what was seen (which counts as one of them)."""
    sums = sums[sums != 0]
    generator = torch.Generator().manual_seed(seed)
    seen = abs(float(sums.sum()))
    extreme = 1
    for _ in range(draws):
        signs = torch.randint(2, (len(sums),), generator=generator).double() * 2 - 1
        extreme += abs(float((signs * sums).sum())) >= seen * (1 - 1e-12)
    return extreme / (draws + 1)
