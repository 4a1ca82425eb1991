"""The examples and notebooks run as they are and do what they say."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))
EXECUTE = """
import sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


def test_with_pml_is_short_and_prints_both_results(capsys):
    path = EXAMPLES / "with_pml.py"
    assert len(path.read_text().splitlines()) < 60
    runpy.run_path(str(path))["main"](seeds=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line[:12].strip() for line in lines] == ["pixels", "without IAA", "with IAA"]
    recalls = [float(re.findall(r"R@1 ([\d.]+)", line)[0]) for line in lines]
    assert all(90 < recall <= 100 for recall in recalls)


def test_free_images_are_the_same_every_time_and_differ_between_classes(tmp_path):
    example = runpy.run_path(str(EXAMPLES / "free_images.py"))
    for name in ("first", "second"):
        example["write"](tmp_path / name, classes=6, per_class=2, size=32)
    files = sorted(path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*.jpg"))
    assert len(files) == 12
    assert len({file.parent for file in files}) == 6
    for file in files:
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()
    pixels = [np.array(Image.open(tmp_path / "first" / file)) for file in files]
    assert {image.shape for image in pixels} == {(32, 32, 3)}
    assert not np.array_equal(pixels[0], pixels[1])
    with pytest.raises(SystemExit, match="--classes must lie in 1 … 180, got 181"):
        example["class_names"](181)


def test_there_are_notebooks_for_images_and_for_the_method():
    assert [path.stem for path in NOTEBOOKS] == ["own_images", "toy_gaussians"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_draws(path, tmp_path):
    """In a process of its own: a kernel's warnings and event loop stay there."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPYTHONDIR": str(tmp_path)}
    environment["PYTHONPATH"] = str(EXAMPLES.parent / "src")
    words = [sys.executable, "-c", EXECUTE, str(path), str(tmp_path / "executed.ipynb")]
    done = subprocess.run(words, cwd=path.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    notebook = nbformat.read(tmp_path / "executed.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    figures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(figures) >= 2
    assert not [
        output for output in outputs if output["output_type"] == "stream" and output["name"] == "stderr"
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    """Outputs would go out of date and make every change unreadable."""
    cells = json.loads(path.read_text())["cells"]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
