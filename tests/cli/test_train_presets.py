import dataclasses
import json

import pytest

from iaa.cli import main
from iaa.cli.cmd_train import show
from iaa.presets import find
from iaa.runs import Run

SCORES = {"R@1": 61.0, "R@2": 72.0, "R@4": 81.0, "R@8": 88.0, "RP": 33.0, "MAP@R": 22.0}


def finished(folder, config):
    (folder / "config.json").write_text(config.to_json())
    metrics = {
        "test": {"test": SCORES},
        "table": {"trained": {"test": SCORES}},
        "epoch": 99,
        "select": "last",
    }
    metrics |= {"train": {"samples": 8, "classes": 2}, "training_seconds": 60.0}
    (folder / "metrics.json").write_text(json.dumps(metrics))


def cells(out, start):
    (row,) = [line for line in out.splitlines() if start in line]
    return [cell.strip() for cell in row.strip("│").split("│")]


def test_a_finished_preset_shows_paper_and_ours_side_by_side(tmp_path, capsys):
    finished(tmp_path, find("cub-ms").config)
    show(Run(tmp_path))
    out = capsys.readouterr().out
    assert cells(out, "trained")[1:] == ["61.0", "72.0", "81.0", "88.0", "33.0", "22.0"]
    assert cells(out, "paper")[1:] == ["62.1", "73.8", "82.7", "", "33.7", "22.6"]
    assert "Table III" in out
    assert "not the paper's recipe" not in out


def test_departures_are_said_below(tmp_path, capsys):
    config = find("cub-ms").config
    finished(tmp_path, dataclasses.replace(config, epochs=2))
    show(Run(tmp_path))
    assert "not the paper's recipe: epochs 2, not 100" in capsys.readouterr().out


def test_train_help_lists_the_presets_and_describes_one(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "- sop-{triplet,contrastive,ms,ms-bn-inception,ms-resnet50," in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["train", "cars-ms", "--help"])
    out = capsys.readouterr().out
    assert "paper, with IAA: R@1 84.2" in out
    assert "(default: 100)" in out


def test_an_unknown_preset_is_one_line_with_the_nearest(capsys):
    assert main(["train", "car-ms"]) == 2
    error = capsys.readouterr().err
    assert "did you mean 'cars-ms'" in error
    assert error.count("\n") == 1
