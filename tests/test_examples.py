"""The examples run as they are and do what they say."""

import re
import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_with_pml_is_short_and_prints_both_results(capsys):
    path = EXAMPLES / "with_pml.py"
    assert len(path.read_text().splitlines()) < 60
    runpy.run_path(str(path))["main"](seeds=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["without", "without", "with", "with"]
    recalls = [float(re.findall(r"R@1\s+([\d.]+)", line)[0]) for line in lines if "R@1" in line]
    assert all(90 < recall <= 100 for recall in recalls)
