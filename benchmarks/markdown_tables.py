"""Tables in Markdown."""

from collections.abc import Iterator
from typing import Any

PLUS = "\u00a0±\u00a0"
"""With spaces at which no line breaks."""


def number(score: dict[str, Any]) -> str:
    """Mean ± standard deviation over seeds."""
    return f"{score['mean']:.2f}" + ("" if score["deviation"] is None else f"{PLUS}{score['deviation']:.2f}")


def p_value(value: float | None) -> str:
    """As it is printed."""
    return "" if value is None else "<\u00a00.001" if value < 0.001 else f"{value:.3f}"


def grid(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    """A table, line by line."""
    yield from (line(head), line(["---"] * len(head)), *map(line, rows), "")


def line(cells: list[str]) -> str:
    """One row."""
    return f"| {' | '.join(cells)} |"
