import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.skipif(
    importlib.util.find_spec("lightning") is None, reason="Lightning is not installed: pip install lightning"
)
def test_the_method_runs_in_a_lightning_module(tmp_path):
    code = "import with_lightning; with_lightning.main(seeds=1, epochs=5)"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(EXAMPLES), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    rows = re.findall(r"^(without|with IAA) +(R@1|MAP@R) +([\d.]+)", ran.stdout, flags=re.MULTILINE)
    assert [row[:2] for row in rows] == [
        (name, metric) for name in ("without", "with IAA") for metric in ("R@1", "MAP@R")
    ]
    scores = {row[:2]: float(row[2]) for row in rows}
    assert all(scores[name, "R@1"] > 90 for name in ("without", "with IAA"))
    assert scores["without", "MAP@R"] != scores["with IAA", "MAP@R"]  # synthetics took part


def test_the_example_is_short_enough_to_be_read():
    assert len((EXAMPLES / "with_lightning.py").read_text().splitlines()) <= 70
