"""The records of a run: ``log.jsonl`` written line by line, and checked readers for it and the scores."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from iaa.files import read_json


class LogFile:
    """``log.jsonl``: a line per step and per epoch; without a path nothing is written.

    ``keep`` is the number of bytes that belong to a checkpoint; the lines after them are dropped.
    """

    def __init__(self, path: Path | None, *, keep: int = 0) -> None:
        self._file = None if path is None else open(path, "ab")  # noqa: SIM115 (open as long as the run)
        if self._file is not None:
            self._file.truncate(keep)
            self._file.seek(keep)

    def __enter__(self) -> "LogFile":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, **values: Any) -> None:
        """Append a line."""
        if self._file is not None:
            self._file.write((json.dumps(values) + "\n").encode())

    def flush(self) -> int:
        """Bring all lines to the disk; returns the size of the file."""
        if self._file is None:
            return 0
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()


def read_metrics(file: Path) -> dict[str, Any]:
    """A ``metrics.json`` that holds everything a finished run writes."""
    metrics = read_json(file)
    number = (int, float)
    expected: dict[str, Any] = {"test": dict, "train": dict, "table": dict, "epoch": int}
    for name, kind in (expected | {"training_seconds": number, "select": str}).items():
        if not isinstance(metrics.get(name), kind):
            raise ValueError(f"{file} is damaged: {name!r} is missing or has the wrong type")
    for name in ("samples", "classes"):
        if not isinstance(metrics["train"].get(name), int):
            raise ValueError(f"{file} is damaged: {name!r} of 'train' is missing or not a whole number")
    table = list(metrics["table"].values())
    for part, scores in metrics["test"].items():
        rows = [scores, *(row.get(part) if isinstance(row, dict) else None for row in table)]
        if not all(isinstance(row, dict) and row.keys() >= scores.keys() for row in rows):
            raise ValueError(
                f"{file} is damaged: 'table' must hold the scores that 'test' holds for {part!r}"
            )
        if not all(isinstance(row[metric], number) for row in rows for metric in scores):
            raise ValueError(f"{file} is damaged: the scores of {part!r} must be numbers")
    return metrics


def read_log(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a ``log.jsonl``; a last line that is still being written is left out."""
    with open(file, encoding="utf-8", errors="replace") as lines:
        for number, text in enumerate(lines, 1):
            if not text.endswith("\n"):
                return
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"line {number} of {file} is not valid JSON: {error}") from error
            if not isinstance(row, dict) or not isinstance(row.get("epoch"), int):
                raise ValueError(f"line {number} of {file} is not a row of a run's log: {text.strip()[:60]}")
            yield row
