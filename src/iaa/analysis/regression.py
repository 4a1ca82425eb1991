"""Did training make search worse? One sentence that says so, for the terminal, the tables and the report."""

from collections.abc import Mapping

Scores = Mapping[str, float]
"""Percent by metric."""

METRICS = ("R@1", "MAP@R")
SMALLEST = 0.05
"""Percentage points; a smaller loss disappears when scores are printed."""


def untrained_rows(table: Mapping[str, Mapping[str, Scores]], test: str) -> dict[str, Scores]:
    """The rows of a run's score table that were measured before training, for one test set.

    Where heads were compared, that is the frozen network alone, at every image size it was measured at.
    """
    frozen = [name for name in table if name == "frozen" or name.startswith("frozen (")]
    names = frozen or [name for name in table if not name.startswith("trained")]
    return {name: table[name][test] for name in names if test in table[name]}


def best_untrained(rows: Mapping[str, Scores]) -> str | None:
    """The name of the row with the highest MAP@R (or R@1, where there is no MAP@R)."""
    if not rows:
        return None
    return max(rows, key=lambda name: (rows[name].get("MAP@R", -1.0), rows[name].get("R@1", -1.0)))


def lowered(scores: Scores, reference: Scores) -> list[str]:
    """The metrics that are lower than those of the reference, as text.

    >>> lowered({"R@1": 60.8, "MAP@R": 27.5}, {"R@1": 85.0, "MAP@R": 27.5})
    ['R@1 60.8 instead of 85.0']
    """
    return [
        f"{metric} {scores[metric]:.1f} instead of {reference[metric]:.1f}"
        for metric in METRICS
        if metric in scores and metric in reference and scores[metric] <= reference[metric] - SMALLEST
    ]


def regression_note(trained: Scores, untrained: Mapping[str, Scores], *, name: str = "Training") -> str:
    """What training lost against the best untrained row, and what to do; empty if it lost nothing.

    >>> regression_note({"R@1": 85.0}, {"frozen lite0": {"R@1": 60.8}})
    ''
    """
    reference = best_untrained(untrained)
    if reference is None:
        return ""
    losses = lowered(trained, untrained[reference])
    if not losses:
        return ""
    both = len(losses) == sum(metric in trained and metric in untrained[reference] for metric in METRICS)
    verdict = "made search worse" if both else "made search worse in part"
    lost = f"{name} {verdict}: {' and '.join(losses)} for {reference!r}"
    if reference == "frozen":  # heads were compared, of which any can be named
        return f"{lost}. --network.head none keeps the network frozen."
    if reference.startswith("frozen ("):
        return f"{lost}. Leave --images.size out: the network is better at the size it was made for."
    return (
        f"{lost}. Keep using that, or train more gently: a lower --optimizer.lr, fewer --epochs, "
        "--network.freeze-bn, or the head alone (--network.freeze-backbone)."
    )
