"""How sure a mean is, and whether one set of embeddings is really better than another on the same data."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from iaa.retrieval.threads import on_every_core

DRAWS = 2000


def intervals(
    values: Float64[Tensor, "m q"],
    classes: Int64[Tensor, " q"] | None = None,
    *,
    level: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> Float64[Tensor, "m 2"]:
    """Percentile bootstrap interval of each row's mean, over queries, or over whole ``classes`` if given.

    Queries of one class share its difficulty, so the interval over classes is the honest one for new classes.
    """
    sums, sizes = _clusters(values, classes)

    def draw(generator: torch.Generator) -> Tensor:
        chosen = torch.randint(len(sizes), (len(sizes),), generator=generator)
        times = chosen.bincount(minlength=len(sizes)).double()
        return (sums @ times) / (sizes @ times)

    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    return _repeat(draw, draws, seed).quantile(ends, dim=0).T


def sampled_mean(percent: Float64[Tensor, "m s"]) -> Float64[Tensor, "m 3"]:
    """Mean of sampled differences in percent, and the ends of its 95 % interval.

    A sample without any difference must not claim certainty, as a bootstrap would: two queries are added,
    one off by +100 and one by -100 (after Agresti and Coull), so that n equal ones still leave ±277 / n.
    """
    size = percent.shape[1] + 2
    squares = percent.square().sum(1) + 2 * 100.0**2
    mean = percent.mean(1)
    middle = percent.sum(1) / size
    half = 1.96 * ((squares / size - middle.square()) / size).sqrt()
    return torch.stack([mean, middle - half, middle + half], 1)


@dataclass(frozen=True)
class Difference:
    """Mean of B less mean of A over the same queries, its interval over classes, and two p-values."""

    mean: float
    low: float
    high: float
    p_queries: float
    p_classes: float


def paired(
    a: Float64[Tensor, "m q"],
    b: Float64[Tensor, "m q"],
    classes: Int64[Tensor, " q"],
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[Difference]:
    """Is B better than A? Two-sided sign-flip permutation tests, flipping single queries and whole classes.

    Under the null hypothesis A and B are exchangeable, so the sign of every difference is a coin's.
    """
    difference = b - a
    spans = intervals(difference, classes, draws=draws, seed=seed).tolist()
    p = [_sign_flip(_clusters(difference, by)[0], draws, seed).tolist() for by in (None, classes)]
    means = difference.mean(1).tolist()
    return [Difference(mean, *span, *ps) for mean, span, *ps in zip(means, spans, *p, strict=True)]


def _clusters(values: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
    """Sum (of every row) and size of each unit that is drawn as one."""
    if classes is None:
        return values, torch.ones_like(values[0])
    _, member = classes.unique(return_inverse=True)
    sums = torch.zeros(len(values), int(member.max()) + 1, dtype=torch.float64)
    return sums.index_add(1, member, values), member.bincount().double()


def _sign_flip(sums: Tensor, draws: int, seed: int) -> Tensor:
    """Share of sign flips at least as far from zero as what was seen (which counts as one of them)."""

    def draw(generator: torch.Generator) -> Tensor:
        return sums @ (torch.randint(2, (sums.shape[1],), generator=generator).double() * 2 - 1)

    seen = sums.sum(1).abs() * (1 - 1e-12)
    return ((_repeat(draw, draws, seed).abs() >= seen).sum(0) + 1) / (draws + 1.0)


def _repeat(draw: Callable[[torch.Generator], Tensor], draws: int, seed: int) -> Tensor:
    """Stack ``draws`` results, on every core; each has its own seed, so threads change nothing."""
    results: list[Tensor] = [torch.empty(0)] * draws
    waiting = iter(range(draws))  # next() on it is one step that threads share safely

    def work() -> None:
        for number in waiting:
            results[number] = draw(torch.Generator().manual_seed(seed * 1_000_003 + number))

    on_every_core(work, torch.device("cpu"))
    return torch.stack(results)
