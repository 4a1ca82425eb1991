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
    for entry in (*report["clients"].values(), report["crowd"], report["one_by_one"]):
        assert (entry["lost"], entry["other"], entry["wrong"], entry["refused_without_retry_after"]) == (
            0,
            0,
            0,
            0,
        )
    assert report["clients"]["3"]["answered"] == 24
    assert report["crowd"]["refused_503"] > 0
    assert report["one_by_one"]["images_per_batch"] == 1
    assert report["crowd"]["answered"] + report["crowd"]["refused_503"] == 60
    sys.modules.pop("measurement", None)


def test_torture_writes_its_figures_and_keeps_those_of_other_sections(run, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    script = runpy.run_path(str(HERE / "torture.py"))
    out = tmp_path / "torture.json"
    out.write_text(json.dumps({"idle": {"about": "Idle.", "load_average": 0, "figures": {"x": {"lost": 0}}}}))
    settings = script["Settings"](
        sections=("load", "half_open"),
        run=run,
        out=out,
        clients=(2,),
        requests=8,
        seconds=1,
        uploads=6,
        pause=0.2,
    )
    script["main"](settings)
    results = json.loads(out.read_text())
    assert set(results) == {"idle", "load", "half_open", "surroundings"}
    assert results["load"]["figures"]["2 clients"]["lost"] == 0
    figures = results["half_open"]["figures"]["unfinished uploads"]
    assert figures["images_answered"] == figures["images_sent"] > 0
    assert figures["health_answered"] == figures["health_sent"] > 0
    text = out.with_suffix(".md").read_text()
    assert "## Half open" in text
    assert "## Idle" in text
    for name in ("measurement", "serve", "kills"):
        sys.modules.pop(name, None)


def test_torture_kills_training_and_embedding(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    script = runpy.run_path(str(HERE / "torture.py"))
    script["main"](script["Settings"](sections=("kills",), out=tmp_path / "torture.json", kills=1))
    figures = json.loads((tmp_path / "torture.json").read_text())["kills"]["figures"]
    assert figures["training"] == {"kills": 1, "files compared": 4, "files identical": 4}
    assert figures["embedding"] == {"kills": 1, "files compared": 1, "files identical": 1}
    for name in ("measurement", "serve", "kills"):
        sys.modules.pop(name, None)


def test_in_the_committed_result_nothing_was_lost():
    report = json.loads((HERE / "serve.json").read_text())
    for entry in (*report["clients"].values(), report["crowd"], report["one_by_one"]):
        assert (entry["lost"], entry["other"], entry["wrong"], entry["refused_without_retry_after"]) == (
            0,
            0,
            0,
            0,
        )
    assert report["clients"]["64"]["images_per_batch"] > 2
    assert report["crowd"]["refused_503"] > 0
    assert not report["commit"].endswith("dirty")
