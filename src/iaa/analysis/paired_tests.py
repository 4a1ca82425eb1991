"""Paired tests over seeds: is one arm better than another with the same seeds, batches and budget?

torch is imported inside the functions: the command line reads this module for ``--help``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

MOST_FLIPS = 20
"""Seeds up to which all sign flips are counted."""


@dataclass(frozen=True)
class Paired:
    """B minus A over n seeds; None where n is too small (or too large) for a value."""

    n: int
    difference: float
    deviation: float | None
    """Sample standard deviation of the differences."""
    p_t: float | None
    """Two-sided paired t-test, which assumes normal differences; None where they are all equal."""
    p_flip: float | None
    """Two-sided exact sign-flip test, free of assumptions; it cannot fall below ``least``."""
    least: float
    """Smallest p-value that a sign-flip test over n seeds can give: 2 of 2^n flips."""


def paired(a: Sequence[float], b: Sequence[float]) -> Paired:
    """Compare the scores of two arms, seed by seed.

    >>> test = paired([50.0, 52.0, 51.0], [51.0, 54.0, 52.5])
    >>> test.difference, test.p_flip, test.least
    (1.5, 0.25, 0.25)
    """
    import torch

    if len(a) != len(b) or not len(a):
        raise ValueError(f"both arms need one score per seed, got {len(a)} and {len(b)}")
    gain = torch.tensor(b, dtype=torch.float64) - torch.tensor(a, dtype=torch.float64)
    n = len(gain)
    mean, deviation = float(gain.mean()), float(gain.std()) if n > 1 else None
    p_flip = _sign_flip(gain) if n <= MOST_FLIPS else None
    return Paired(n, mean, deviation, _t_test(mean, deviation, n), p_flip, 2.0 ** (1 - n))


def spread(scores: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (None for one score)."""
    import torch

    values = torch.tensor(scores, dtype=torch.float64)
    return float(values.mean()), float(values.std()) if len(values) > 1 else None


def caution(n: int, level: float = 0.05) -> str:
    """A warning that so few seeds cannot show much; empty if they are enough.

    >>> caution(6)
    ''
    """
    enough = next(m for m in range(2, 64) if 2.0 ** (1 - m) <= level)
    if n >= enough:
        return ""
    if n == 1:
        return (
            f"One seed proves nothing: the difference may be chance. {enough} seeds can reach p < {level:g}."
        )
    return (
        f"With {n} seeds the smallest p the sign-flip test can give is {2.0 ** (1 - n):g}; {enough} seeds "
        f"can reach p < {level:g}. The t-test can fall lower, but assumes normal differences."
    )


def _t_test(mean: float, deviation: float | None, n: int) -> float | None:
    if deviation is None or deviation <= 1e-9 * abs(mean):  # no spread to hold the mean against
        return None
    from scipy.special import stdtr  # scipy comes with pytorch-metric-learning

    return float(2 * stdtr(n - 1, -abs(mean) / (deviation / n**0.5)))


def _sign_flip(gain: "Tensor") -> float:
    """Share of all 2^n sign patterns whose sum is at least as far from zero as the observed one."""
    import torch

    sums = torch.zeros(1, dtype=torch.float64)
    for difference in gain:
        sums = torch.cat([sums + difference, sums - difference])
    rounding = 1e-9 * gain.abs().sum()
    return float((sums.abs() >= gain.sum().abs() - rounding).double().mean())
