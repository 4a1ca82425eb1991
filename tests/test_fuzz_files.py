"""Every reader against damaged files; `python benchmarks/fuzz_files.py` does it with thousands."""

import json
from pathlib import Path

import fuzz_files
import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_files_are_refused_in_one_line(seed):
    counts = fuzz_files.run(150, seed=seed)
    assert sum(count["refused"] for count in counts.values()) > 100
    assert {kind: (c["tracebacks"], c["undetected"]) for kind, c in counts.items()} == dict.fromkeys(
        counts, (0, 0)
    )


def test_the_counts_kept_are_those_of_thousands_of_files():
    kept = json.loads((HERE.parent / "benchmarks" / "fuzz_files.json").read_text())
    assert kept["files"] >= 2000
    assert kept["total"]["tracebacks"] == kept["total"]["undetected"] == 0
