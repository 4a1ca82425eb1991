"""Can neighbour correction be expected to help on this data? In words, with what they rest on."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["strong", "weak", "none", "unknown"]


@dataclass(frozen=True)
class Verdict:
    """How far similar means go with similar covariances, and what follows for neighbour correction."""

    level: Level
    """Of the correlation: strong, weak, none, or unknown where there is too little to tell."""
    helps: bool | None
    """Whether borrowed variances were nearer to held-out samples than the classes' own; None: not tested."""
    text: str
    """One paragraph for a reader."""
    rests_on: tuple[str, ...]
    """The numbers behind it, a sentence each."""
