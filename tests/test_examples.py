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
    assert [line[:12].strip() for line in lines] == ["pixels", "without IAA", "with IAA"]
    recalls = [float(re.findall(r"R@1 ([\d.]+)", line)[0]) for line in lines]
    assert all(90 < recall <= 100 for recall in recalls)
