"""Results of analyses as JSON, CSV and Markdown."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any


def plain(result: Any) -> Any:
    """What JSON can hold: dataclasses as objects, tuples as lists, infinite and undefined numbers as null.

    >>> from iaa.analysis.paired_tests import paired
    >>> plain(paired([1.0], [2.0]))["difference"]
    1.0
    """
    if hasattr(result, "__dataclass_fields__"):
        result = asdict(result)
    if isinstance(result, Mapping):
        return {str(key): plain(value) for key, value in result.items()}
    if isinstance(result, tuple | list):
        return [plain(value) for value in result]
    if isinstance(result, float) and not math.isfinite(result):
        return None
    return result


def csv_text(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table as CSV, quoted where needed; None is an empty cell.

    >>> csv_text(["class", "n"], [["a, b", 3]])
    'class,n\\n"a, b",3\\n'
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(list(head))
    writer.writerows([list(row) for row in rows])
    return out.getvalue()


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table.

    >>> markdown_table(["a", "b"], [["1", "x|y"]])
    ['| a | b |', '| --- | --- |', '| 1 | x\\\\|y |']
    """
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cell.strip().replace('|', chr(92) + '|') for cell in line)} |" for line in lines]
