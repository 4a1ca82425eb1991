import pytest

from iaa.analysis.comparison import summarize, table

BASE = {0: {"test": {"R@1": 50.0, "RP": 30.0}}, 1: {"test": {"R@1": 52.0, "RP": 31.0}}}
BETTER = {1: {"test": {"R@1": 55.0, "RP": 31.0}}, 0: {"test": {"R@1": 51.0, "RP": 30.0}}}


def test_arms_are_paired_by_seed_whatever_their_order():
    found = summarize({"baseline": BASE, "iaa": BETTER})["test"]["R@1"]
    assert found["baseline"]["values"] == [50.0, 52.0]
    assert found["iaa"]["values"] == [51.0, 55.0]
    assert found["iaa"]["mean"] == 53.0
    gain = found["iaa"]["against_baseline"]
    assert gain["difference"] == 2.0
    assert gain["deviation"] == pytest.approx(2**0.5)
    assert gain["p_flip"] == gain["least"] == 0.5


def test_the_table_has_a_line_per_metric_and_arm_with_the_paper_beside():
    rows = summarize({"baseline": BASE, "iaa": BETTER})["test"]
    head, *lines = table(rows, {"iaa": {"R@1": 62.1}})
    assert head == ["metric", "arm", "score", "difference", "p (t)", "p (flips)", "paper"]
    assert lines[0] == ["R@1", "baseline", "51.00 ± 1.41", "", "", "", ""]
    assert lines[1] == ["", "iaa", "53.00 ± 2.83", "+2.00 ± 1.41", "0.295", "0.500", "62.1"]
    assert lines[3] == ["", "iaa", "30.50 ± 0.71", "+0.00 ± 0.00", "-", "1.000", ""]


def test_one_seed_has_no_deviation():
    rows = summarize({"baseline": {0: BASE[0]}, "iaa": {0: BETTER[0]}})["test"]
    assert table(rows, {})[2] == ["", "iaa", "51.00", "+1.00", "-", "1.000"]


def test_seeds_must_be_equal():
    with pytest.raises(ValueError, match=r"iaa must have the seeds of baseline, \[0, 1\]; got \[0\]"):
        summarize({"baseline": BASE, "iaa": {0: BETTER[0]}})
