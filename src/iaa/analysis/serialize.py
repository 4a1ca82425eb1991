"""Results as plain data: every analysis ends in frozen dataclasses of numbers, words and tuples of them."""

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any


def plain(result: Any) -> Any:
    """What JSON can hold: dataclasses as objects, tuples as lists, numbers that are none as null.

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
    """A table as CSV, quoted where it must be; None is an empty cell.

    >>> csv_text(["class", "n"], [["a, b", 3]])
    'class,n\\n"a, b",3\\n'
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(list(head))
    writer.writerows([list(row) for row in rows])
    return out.getvalue()
