import pytest

from iaa.analysis.experiments import (
    Arm,
    Study,
    arm_table,
    comma_separated,
    markdown,
    mean_scores,
    metric_table,
    summary,
    tabulate,
)

BASE = {0: {"test": {"R@1": 50.0, "RP": 30.0}}, 1: {"test": {"R@1": 52.0, "RP": 31.0}}}
BETTER = {1: {"test": {"R@1": 55.0, "RP": 31.0}}, 0: {"test": {"R@1": 51.0, "RP": 30.0}}}
STUDY = Study("x", "X", "", None, (Arm("baseline"), Arm("iaa", against="baseline", paper={"cub": 62.1})))


def experiment(base=BASE, better=BETTER):
    return tabulate(STUDY, {"baseline": base, "iaa": better}, seconds={"baseline": [1.0], "iaa": [2.0, 4.0]})


def test_arms_are_paired_by_seed_whatever_their_order():
    found = summary(experiment())["test"]["R@1"]
    assert found["baseline"]["values"] == [50.0, 52.0]
    assert found["iaa"]["values"] == [51.0, 55.0]
    assert found["iaa"]["mean"] == 53.0
    gain = found["iaa"]["against_baseline"]
    assert gain["difference"] == 2.0
    assert gain["deviation"] == pytest.approx(2**0.5)
    assert gain["p_flip"] == gain["least"] == 0.5
    assert "against_baseline" not in found["baseline"]


def test_the_table_has_a_line_per_metric_and_arm_with_the_paper_beside():
    head, *lines = metric_table(experiment(), "test", paper={"iaa": {"R@1": 62.1}})
    assert head == ["metric", "arm", "score", "difference", "p (t)", "p (flips)", "paper"]
    assert lines[0] == ["R@1", "baseline", "51.00 ± 1.41", "", "", "", ""]
    assert lines[1] == ["", "iaa", "53.00 ± 2.83", "+2.00 ± 1.41", "0.295", "0.500", "62.1"]
    assert lines[3] == ["", "iaa", "30.50 ± 0.71", "+0.00 ± 0.00", "-", "1.000", ""]


def test_untrained_scores_come_first():
    untrained = {"frozen lite0": {"R@1": 60.0}, "pixels": {"R@1": 9.0, "RP": 5.0}}
    _, *lines = metric_table(experiment(), "test", untrained=untrained)
    assert lines[0] == ["R@1", "frozen lite0", "60.00", "", "", ""]
    assert lines[1] == ["", "pixels", "9.00", "", "", ""]
    assert lines[2][:3] == ["", "baseline", "51.00 ± 1.41"]
    assert [line[:2] for line in lines[4:]] == [["RP", "pixels"], ["", "baseline"], ["", "iaa"]]


def test_one_seed_has_no_deviation():
    found = experiment({0: BASE[0]}, {0: BETTER[0]})
    assert metric_table(found, "test")[2] == ["", "iaa", "51.00", "+1.00", "-", "1.000"]


def test_seeds_must_be_equal():
    with pytest.raises(ValueError, match=r"iaa must have the seeds \[0, 1\], got \[0\]"):
        experiment(better={0: BETTER[0]})


def test_a_table_of_arms_has_the_gain_in_the_first_metric():
    head, baseline, arm = arm_table(experiment(), "test")
    assert head == ["arm", "R@1", "RP", "R@1 gained", "over", "p (t)", "paper, cub"]
    assert baseline == ["baseline", "51.00 ± 1.41", "30.50 ± 0.71", "", "", "", ""]
    assert arm == ["iaa", "53.00 ± 2.83", "30.50 ± 0.71", "+2.00 ± 1.41", "baseline", "0.295", "62.1"]


def test_pages_and_files_hold_every_number():
    found = experiment()
    page = markdown("Title", {"test": arm_table(found, "test")}, ["a note"])
    assert page.startswith("# Title\n\n| arm | R@1 |")
    assert page.endswith("\n- a note\n")
    lines = comma_separated(found).splitlines()
    assert lines[0] == "arm,series,x,changes,test,metric,seed,score"
    assert lines[1] == "baseline,,,,test,R@1,0,50.0"
    assert len(lines) == 1 + 2 * 2 * 2
    assert mean_scores(found.rows[1], "test") == {"R@1": 53.0, "RP": 30.5}
    assert found.rows[1].training_seconds == 3.0
