import json

import pytest
import torch

import iaa
from iaa.cli import main
from iaa.training import checkpoint


@pytest.fixture
def arguments(tmp_path):
    """A comparison of a few seconds: heads on vectors."""
    torch.manual_seed(0)
    labels = torch.arange(24).repeat_interleave(5)
    z = torch.randn(24, 8)[labels] + 0.8 * torch.randn(120, 8)
    split = ["train" if label < 14 else "test" for label in labels]
    ids = [str(row) for row in range(120)]
    names = {label: f"class {label}" for label in range(24)}
    iaa.Embeddings(z, labels, ids, names, split, ["both"] * 120).save(tmp_path / "vectors.safetensors")
    options = f"--data embeddings:{tmp_path}/vectors.safetensors --epochs 2 --network.dim 4 --batch.classes 4"
    return ["compare", *options.split(), "--run.logger", "none", "--quiet", "--seeds", "2", "--out"]


def scores(folder):
    summary = json.loads((folder / "comparison.json").read_text())["summary"]["test"]
    return {(metric, arm): one["values"] for metric, row in summary.items() for arm, one in row.items()}


def _is_worse(result, arm):
    untrained = result["untrained"]["vectors as given"]["test"]
    summary = result["summary"]["test"]
    return any(summary[metric][arm]["mean"] <= untrained[metric] - 0.05 for metric in ("R@1", "MAP@R"))


def test_every_arm_and_seed_is_a_run_and_the_result_is_written(arguments, tmp_path, capsys):
    arm = ["--arm", "wide: augment.strength=2.0, augment.correction=False"]
    assert main([*arguments, str(tmp_path / "out"), *arm]) == 0
    result = json.loads((tmp_path / "out/comparison.json").read_text())
    assert result["runs"] == {
        name: [f"{name}-seed{seed}" for seed in (0, 1)] for name in ("baseline", "iaa", "wide")
    }
    for name, copies, strength in (("baseline", 0, 0.2), ("iaa", 3, 0.2), ("wide", 3, 2.0)):
        for seed in (0, 1):
            config = json.loads((tmp_path / f"out/{name}-seed{seed}/config.json").read_text())
            assert config["seed"] == seed
            assert (config["augment"]["copies"], config["augment"]["strength"]) == (copies, strength)
            assert config["augment"]["correction"] is (name != "wide")
            metrics = json.loads((tmp_path / f"out/{name}-seed{seed}/metrics.json").read_text())
            row = result["summary"]["test"]["MAP@R"][name]
            assert row["values"][seed] == metrics["test"]["test"]["MAP@R"]
    assert result["versions"]["torch"]
    assert result["config"]["epochs"] == 2
    assert set(result["untrained"]) == {"vectors as given"}
    page = (tmp_path / "out/comparison.md").read_text()
    assert "smallest p the sign-flip test can give is 0.5" in page
    assert "- wide: augment.strength=2.0, augment.correction=False." in page
    out = capsys.readouterr().out
    assert "wide" in out
    untrained = result["untrained"]["vectors as given"]["test"]
    row = (
        f"| R@1 | vectors as given | {untrained['R@1']:.2f} |"  # first in the table: what training must beat
    )
    assert row in page
    assert "vectors as given" in out
    for name, worse in ((arm, _is_worse(result, arm)) for arm in ("baseline", "iaa", "wide")):
        assert any(note.startswith(f"{name} made search worse") for note in result["warnings"]) is worse
        assert (f"{name} made search worse" in out) is worse
    assert any(_is_worse(result, arm) for arm in ("baseline", "iaa", "wide"))  # two epochs into 4 dimensions


def test_the_baseline_can_have_a_margin_of_its_own(arguments, tmp_path):
    arm = ["--arm", "baseline: loss_options={'base': 0.7, 'alpha': 3.0}, optimizer.lr=0.01"]
    assert main([*arguments, str(tmp_path / "out"), *arm]) == 0
    for name, options, rate, copies in (
        ("baseline", {"base": 0.7, "alpha": 3.0}, 0.01, 0),
        ("iaa", {}, 1e-3, 3),
    ):
        config = json.loads((tmp_path / f"out/{name}-seed0/config.json").read_text())
        assert config["loss_options"] == options
        assert (config["optimizer"]["lr"], config["augment"]["copies"]) == (rate, copies)


def test_an_interrupted_comparison_continues_where_it_was(arguments, tmp_path, capsys, monkeypatch):
    assert main([*arguments, str(tmp_path / "whole")]) == 0
    saved, save = [], checkpoint.save

    def stop(folder, task, position):
        save(folder, task, position)
        saved.append(folder.name)
        if saved == ["baseline-seed0", "baseline-seed0", "iaa-seed0"]:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", stop)
    capsys.readouterr()
    assert main([*arguments, str(tmp_path / "cut")]) == 130
    assert not (tmp_path / "cut/iaa-seed0/metrics.json").exists()
    before = (tmp_path / "cut/baseline-seed0/metrics.json").stat().st_mtime_ns

    assert main([*arguments, str(tmp_path / "cut")]) == 0
    assert saved.count("iaa-seed0") == 2  # one epoch before, one after
    assert (tmp_path / "cut/baseline-seed0/metrics.json").stat().st_mtime_ns == before
    assert scores(tmp_path / "cut") == scores(tmp_path / "whole")
    assert len([path for path in (tmp_path / "cut").iterdir() if path.is_dir()]) == 4


def test_more_seeds_add_to_what_is_there(arguments, tmp_path):
    one = [*arguments, str(tmp_path / "out")]
    one[one.index("--seeds") + 1] = "1"
    assert main(one) == 0
    before = scores(tmp_path / "out")
    assert main([*arguments, str(tmp_path / "out")]) == 0
    after = scores(tmp_path / "out")
    assert {key: values[:1] for key, values in after.items()} == before
    assert len(after["R@1", "iaa"]) == 2


def test_runs_of_another_comparison_are_refused_before_any_work(arguments, tmp_path, capsys):
    assert main([*arguments, str(tmp_path / "out")]) == 0
    capsys.readouterr()
    assert main([*arguments, str(tmp_path / "out"), "--augment.strength", "0.5"]) == 2
    error = capsys.readouterr().err
    assert "is a run of another comparison (--augment.strength 0.5, not 0.2): give another --out" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["car-ms"], "did you mean 'cars-ms'"),
        (["emoji", "--arm", "x: augment.copis=2"], "did you mean --augment.copies?"),
        (
            ["emoji", "--arm", "x: augment.copies=two"],
            "copies in augment in an arm must be a whole number, got 'two'",
        ),
        (["emoji", "--arm", "x: epochs.copies=2"], "unknown option --epochs.copies"),
        (["emoji", "--arm", "x: augment.refresh=steam"], "did you mean 'stream'"),
        (["emoji", "--arm", "x: augment.copies"], "'name: field=value, ...', got 'augment.copies'"),
        (["emoji", "--arm", "augment.copies=2"], "an arm is written 'name: field=value, ...'"),
        (["emoji", "--arm", "iaa: augment.copies=2"], "with a name of its own"),
        (["emoji", "--augment.copies", "0"], "every arm would be a baseline"),
        (["emoji", "--seeds", "0"], "seeds must be at least 1, got 0"),
    ],
)
def test_errors_are_one_line(given, message, capsys):
    assert main(["compare", *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_help_lists_the_presets(capsys):
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    out = capsys.readouterr().out
    assert "- cars-{triplet,contrastive,ms," in out
    assert "--augment.copies" in out


def test_an_earlier_seed_can_be_added(arguments, tmp_path):
    def compare(*more):
        assert main([*arguments, str(tmp_path / "out"), *more]) == 0
        return json.loads((tmp_path / "out/comparison.json").read_text())

    alone = compare("--seed", "1", "--seeds", "1")
    both = compare("--seed", "0", "--seeds", "2")
    assert both["untrained"]
    assert both["runs"]["iaa"] == ["iaa-seed0", "iaa-seed1"]
    values = [one["summary"]["test"]["R@1"]["iaa"]["values"][-1] for one in (alone, both)]
    assert values[0] == values[1]


def test_an_arm_is_named_once(arguments, tmp_path, capsys):
    arms = ["--arm", "a: augment.copies=1", "--arm", "a: augment.copies=2"]
    assert main([*arguments, str(tmp_path / "out"), *arms]) == 2
    assert "--arm a is given 2 times: name every arm once" in capsys.readouterr().err
