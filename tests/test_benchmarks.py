import json
import runpy
from pathlib import Path

import miniatures

HERE = Path(__file__).parents[1] / "benchmarks"


def test_the_images_benchmark_runs(tmp_path, capsys):
    script = runpy.run_path(str(HERE / "images.py"))
    settings = script["Settings"](
        root=miniatures.cub(tmp_path), out=tmp_path / "out.json", pictures=6, repeats=2, epochs=2, workers=0
    )
    script["main"](settings)
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["ratio_later_epochs"] > 0
    assert len(report["pictures_per_second"]["iaa"]) == 2
    assert report["versions"]["torch"]


def test_the_committed_result_meets_its_aim():
    report = json.loads((HERE / "images.json").read_text())
    assert report["ratio_first_epoch"] >= 0.9
    assert report["ratio_later_epochs"] >= 1.5
    assert not report["commit"].endswith("dirty")
