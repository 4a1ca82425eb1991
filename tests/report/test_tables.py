from dataclasses import replace
from pathlib import Path

import pytest
import torch

from iaa import Embeddings
from iaa.presets import find
from iaa.report.findings import Findings, RunSummary, Scores
from iaa.report.tables import run_facts, score_tables
from iaa.report.thumbnails import Thumbnails
from iaa.retrieval.significance import Difference

METRICS = {
    "epoch": 9,
    "select": "last",
    "training_seconds": 5400.0,
    "train": {"samples": 5864, "classes": 100},
    "test": {"test": {"R@1": 60.0}},
    "table": {"pretrained googlenet": {"test": {"R@1": 41.2}}, "trained": {"test": {"R@1": 60.0}}},
}


def findings(name="run-1", value=60.0, **fields):
    config = replace(find("cub-ms").config, root="birds", **fields)
    run = RunSummary(name, Path(name), {}, config, METRICS)
    scores = {"R@1": {"value": value, "over_queries": [58.0, 62.0], "over_classes": [55.0, 64.0]}}
    data = Embeddings(torch.zeros(2, 2), torch.tensor([0, 0]))
    return Findings(run, data, Thumbnails(), data, scores={"test": Scores(5924, 100, None, 3, scores)})


def texts(table):
    return [[cell.text for cell in row] for row in table.rows]


def test_scores_stand_between_doing_nothing_and_the_paper():
    (table,) = score_tables([findings()])
    assert table.head == ("", "R@1")
    assert texts(table) == [
        ["pretrained googlenet", "41.2"],
        ["trained", "60.0"],
        ["paper, with IAA", "62.1"],
    ]
    assert table.rows[1][1].detail == "55.0 – 64.0"  # over classes, the honest one
    assert table.rows[2][0].detail == "Table III, Table VI"
    notes = " ".join(table.notes)
    assert "5,924 queries of 100 classes, each against all others" in notes
    assert "3 queries have no match" in notes
    assert "One seed." in notes
    assert "departs" not in notes


def test_scores_below_those_before_training_are_marked():
    (better,) = score_tables([findings()])
    (worse,) = score_tables([findings(value=30.0)])
    assert not better.rows[1][1].worse
    assert worse.rows[1][1].worse


def test_a_page_says_at_the_top_that_training_made_search_worse():
    pytest.importorskip("matplotlib")
    from iaa.report.page import _headline, _warnings

    good, bad = findings(), findings(value=30.0)
    assert not list(_warnings([good]))
    assert [number.worse for number in _headline([good])] == [False, False]
    (warning,) = _warnings([bad])
    assert warning.startswith("Training made search worse: R@1 30.0 instead of 41.2")
    assert [number.worse for number in _headline([bad])] == [True, False]
    (warning,) = _warnings([good, replace(bad, run=replace(bad.run, name="run-2"))])
    assert warning.startswith("run-2 made search worse")


def test_departures_from_the_paper_are_reported():
    (table,) = score_tables([findings(epochs=10)])
    assert any("departs from the paper's recipe: epochs 10, not 100" in note for note in table.notes)


def test_runs_side_by_side_share_what_came_before_and_are_compared():
    first, second = findings(), findings("run-2", 61.0, seed=1)
    second.against_first = {"test": {"R@1": Difference(1.0, -0.2, 2.2, 0.01, 0.0004)}}
    (table,) = score_tables([first, second])
    names = ["pretrained googlenet", "run-1", "run-2", "difference", "paper, with IAA"]
    assert [row[0] for row in texts(table)] == names
    gain = table.rows[3][1]
    assert (gain.text, gain.detail, gain.strong) == ("+1.0", "−0.2 to +2.2\np < 0.001", False)
    assert any("2 seeds" in note for note in table.notes)


def test_run_facts_holds_recipe_and_all_fields():
    facts = run_facts(findings())
    rows, fields = dict(facts.rows), dict(facts.more)
    assert rows["augmentation"] == "3 copies, strength 0.8, diagonal, neighbours 25"
    assert rows["training took"] == "90 minutes"
    assert fields["optimizer.drop_at"] == "(40, 60)"
    assert fields["root"] == "birds"
