import csv
import json
import signal
import subprocess
import sys
import time

import pytest
import torch

import iaa
import tiny_runs
from iaa.cli import main
from iaa.presets.ablations import STUDIES
from iaa.presets.paper_tables import numbers


@pytest.fixture
def arguments(tmp_path):
    """Heads on vectors: a run takes a fraction of a second."""
    torch.manual_seed(0)
    labels = torch.arange(20).repeat_interleave(9)
    z = torch.randn(20, 8)[labels] + 0.8 * torch.randn(180, 8)
    split = ["train" if label < 12 else "test" for label in labels]
    iaa.Embeddings(z, labels, split=split).save(tmp_path / "vectors.safetensors")
    options = f"--data embeddings:{tmp_path}/vectors.safetensors --epochs 2 --network.dim 4 --batch.classes 4"
    return [
        *options.split(),
        "--run.logger",
        "none",
        "--quiet",
        "--seeds",
        "2",
        "--out",
        str(tmp_path / "out"),
    ]


def read(tmp_path):
    return json.loads((tmp_path / "out/ablation.json").read_text())


def test_few_samples_trains_every_arm_on_so_many(arguments, tmp_path, capsys):
    arms = ["--arms", "corrected-3", "corrected-all", "--seeds", "1"]
    assert main(["ablate", "few-samples", *arguments, *arms]) == 0
    result = read(tmp_path)
    assert [row["arm"] for row in result["rows"]][:3] == ["baseline-3", "uncorrected-3", "corrected-3"]
    assert len(result["rows"]) == 6
    for number, samples in (("3", 36), ("all", 108)):
        for kind in ("baseline", "uncorrected", "corrected"):
            folder = tmp_path / f"out/{kind}-{number}-seed0"
            metrics = json.loads((folder / "metrics.json").read_text())
            assert metrics["train"] == {"samples": samples, "classes": 12, "tested_as_well": 0}
            row = next(row for row in result["rows"] if row["arm"] == f"{kind}-{number}")
            assert row["scores"]["test"]["MAP@R"]["values"] == [metrics["test"]["test"]["MAP@R"]]
    corrected = next(row for row in result["rows"] if row["arm"] == "corrected-3")
    base = next(row for row in result["rows"] if row["arm"] == "uncorrected-3")
    assert corrected["against"] == "uncorrected-3"
    gains = [
        a - b
        for a, b in zip(
            corrected["scores"]["test"]["R@1"]["values"], base["scores"]["test"]["R@1"]["values"], strict=True
        )
    ]
    assert corrected["scores"]["test"]["R@1"]["difference"] == pytest.approx(gains[0])
    assert corrected["paper"] == {"cub": 56.7, "cars": 71.8}
    page = (tmp_path / "out/ablation.md").read_text()
    assert "| corrected-3 |" in page
    assert "The paper trains on all samples and takes N for the covariances alone" in page
    with open(tmp_path / "out/ablation.csv") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 6 * len(result["rows"][0]["scores"]["test"])
    assert "corrected-3" in capsys.readouterr().out


def test_few_estimates_trains_on_all_and_estimates_from_some(arguments, tmp_path):
    from safetensors.torch import load_file

    arms = ["--arms", "corrected-3", "--seeds", "1"]
    assert main(["ablate", "few-estimates", *arguments, *arms]) == 0
    folder = tmp_path / "out/corrected-3-seed0"
    assert json.loads((folder / "metrics.json").read_text())["train"]["samples"] == 108
    assert load_file(folder / "statistics.safetensors")["count"].tolist() == [3] * 12


def test_it_continues_and_adds_seeds(arguments, tmp_path):
    one = [*arguments]
    one[one.index("--seeds") + 1] = "1"
    assert main(["ablate", "copies", *one, "--arms", "copies-2"]) == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/metrics.json")}
    assert sorted(path.parent.name for path in before) == ["copies-0-seed0", "copies-2-seed0"]
    (tmp_path / "out/copies-2-seed0/metrics.json").unlink()  # as if killed before its end
    assert main(["ablate", "copies", *arguments, "--arms", "copies-2"]) == 0
    assert len(list((tmp_path / "out").glob("*/metrics.json"))) == 4
    kept = tmp_path / "out/copies-0-seed0/metrics.json"
    assert kept.stat().st_mtime_ns == before[kept]
    row = read(tmp_path)["rows"][1]
    assert (row["arm"], row["x"], row["series"], row["against"]) == ("copies-2", 2.0, "IAA", "copies-0")


def test_parallel_runs_give_the_same_scores(arguments, tmp_path):
    arms = ["--arms", "strength-0.4", "--seeds", "1"]
    assert main(["ablate", "strength", *arguments, *arms]) == 0
    alone = read(tmp_path)
    arguments[arguments.index("--out") + 1] = str(tmp_path / "together")
    assert main(["ablate", "strength", *arguments, *arms, "--jobs", "2"]) == 0
    together = json.loads((tmp_path / "together/ablation.json").read_text())
    assert [row["scores"] for row in together["rows"]] == [row["scores"] for row in alone["rows"]]
    assert [row["arm"] for row in together["rows"]] == ["baseline", "strength-0.4"]


def begun_in_other_processes(arguments, out):
    """An ablation of runs without end, once two of them have a checkpoint."""
    long = [*arguments, "--epochs", "100000", "--seeds", "1", "--jobs", "2"]
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # even in the background
    program = f"{heed}; import sys; from iaa.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "ablate", "strength", *long]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while len(list(out.glob("*/checkpoint.safetensors"))) < 2:
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.1)
    return process


def test_ctrl_c_ends_runs_in_other_processes_with_a_checkpoint(arguments, tmp_path):
    process = begun_in_other_processes(arguments, tmp_path / "out")
    try:
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert error == f"stopped; the same command continues in {tmp_path / 'out'}\n"
    begun = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert begun == ["baseline-seed0", "strength-0.2-seed0"]  # and no further one


def test_runs_end_with_the_command_that_was_killed(arguments, tmp_path):
    process = begun_in_other_processes(arguments, tmp_path / "out")
    process.kill()
    process.communicate(timeout=60)  # its runs write to the same pipe: closed when the last has ended
    begun = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert begun == ["baseline-seed0", "strength-0.2-seed0"]


def test_a_failing_run_in_another_process_ends_in_one_line(arguments, capsys):
    assert main(["ablate", "strength", *arguments, "--jobs", "2", "--loss-options", "margin", "0.1"]) == 2
    error = capsys.readouterr().err
    assert "loss_options of multi_similarity must be one of" in error


def test_arms_without_effect_are_named(arguments, tmp_path):
    arms = ["--arms", "falloff-0.1", "falloff-1"]
    assert main(["ablate", "falloff", *arguments, *arms, "--augment.few", "2"]) == 0
    assert any(
        "Same scores in every seed: falloff-0.1, falloff-1" in note for note in read(tmp_path)["notes"]
    )


def test_it_works_on_images(tmp_path):
    tiny_runs.images(tmp_path / "images")
    config = tiny_runs.tiny(tmp_path / "images", tmp_path, epochs=1)
    (tmp_path / "config.json").write_text(config.to_json())
    arguments = ["components", str(tmp_path / "config.json"), "--arms", "full-corrected", "alpha-1"]
    assert main(["ablate", *arguments, "--seeds", "1", "--quiet", "--out", str(tmp_path / "out")]) == 0
    assert [row["arm"] for row in read(tmp_path)["rows"]] == ["baseline", "full-corrected", "alpha-1"]


def test_every_arm_of_every_study_is_a_configuration():
    from iaa.cli.config_options import changed
    from iaa.config import Config

    for study in STUDIES.values():
        names = [arm.name for arm in study.arms]
        assert len(set(names)) == len(names)
        made = [changed(Config(), arm.changes) for arm in study.arms]
        assert all(arm.against in (None, *names[: place + 1]) for place, arm in enumerate(study.arms))
        same = [a.name for a, one in zip(study.arms, made, strict=True) if made.count(one) > 1]
        assert not same
    assert set(STUDIES) == {
        *("components", "few-samples", "few-estimates", "generation", "losses", "strength"),
        *("neighbors", "copies", "refresh", "falloff", "dim", "generators"),
    }


def test_every_number_of_the_paper_belongs_to_an_arm():
    for table, name in (
        ("Table IX", "components"),
        ("Table XI", "few-samples"),
        ("Table XI", "few-estimates"),
        ("Table XII", "generation"),
        ("Table III", "generators"),
    ):
        arms = {arm.name: arm.paper for arm in STUDIES[name].arms}
        for row, printed in numbers(table).items():
            assert arms[row] == printed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["few-sample"], "did you mean 'few-samples'"),
        (["copies", "emoji", "--arms", "copies-9"], "an arm must be one of"),
        (["copies", "emoji", "--jobs", "0"], "jobs must be at least 1, got 0"),
        (["copies", "emoji", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["copies", "emoji", "--augment.copies", "0"], "every arm would be a baseline"),
        (["copies", "emoji", "--augment.samples", "0"], "augment.samples must be at least 1"),
        (["copies", "emoj"], "no preset, configuration or run 'emoj'"),
        (["copies", "emoji", "--epoch", "3"], "did you mean --epochs?"),
    ],
)
def test_errors_are_one_line(given, message, capsys):
    assert main(["ablate", *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_help_teaches(capsys):
    assert main(["ablate", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in STUDIES)
    with pytest.raises(SystemExit):
        main(["ablate", "few-samples", "--help"])
    out = capsys.readouterr().out
    assert "- corrected-3" in out
    assert "--jobs" in out
