"""The report: one HTML page about one or more runs; ``iaa.report(run)`` writes it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iaa.module_as_function import make_callable


def report(
    runs: "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]",
    out: str | Path | None = None,
    **options: Any,
) -> Path:
    """Write one page about one or more runs or embeddings files; returns its path.

    ``out`` is ``report.html`` in the run by default, or in the working directory if there are several.
    """
    from iaa.report.page import write_report

    several = [runs] if isinstance(runs, str | os.PathLike) else list(runs)
    return write_report(several, out, **options)[0]


make_callable(__name__, report)
