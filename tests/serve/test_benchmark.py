import json
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parents[2] / "benchmarks"


def test_the_benchmark_runs_and_loses_nothing(run, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(HERE))
    script = runpy.run_path(str(HERE / "serve.py"))
    settings = script["Settings"](
        run=run,
        out=tmp_path / "out.json",
        clients=(1, 3),
        requests=24,
        crowd=60,
        in_flight=4,
        seconds=20,
        settle=0,
    )
    script["main"](settings)
    report = json.loads((tmp_path / "out.json").read_text())
    for one in (*report["clients"].values(), report["crowd"], report["one_by_one"]):
        assert (one["lost"], one["other"], one["wrong"], one["refused_without_retry_after"]) == (0, 0, 0, 0)
    assert report["clients"]["3"]["answered"] == 24
    assert report["crowd"]["refused_503"] > 0
    assert report["one_by_one"]["images_per_batch"] == 1
    assert report["crowd"]["answered"] + report["crowd"]["refused_503"] == 60
    sys.modules.pop("surroundings", None)


def test_in_the_committed_result_nothing_was_lost():
    report = json.loads((HERE / "serve.json").read_text())
    for one in (*report["clients"].values(), report["crowd"], report["one_by_one"]):
        assert (one["lost"], one["other"], one["wrong"], one["refused_without_retry_after"]) == (0, 0, 0, 0)
    assert report["clients"]["64"]["images_per_batch"] > 2
    assert report["crowd"]["refused_503"] > 0
    assert not report["commit"].endswith("dirty")
