import itertools
import json
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from iaa.analysis.experiments import Arm, Study, caution, mean_scores, paired, spread, tabulate
from iaa.analysis.serialize import arm_table, comma_separated, markdown, metric_table, summary

BASE = {0: {"test": {"R@1": 50.0, "RP": 30.0}}, 1: {"test": {"R@1": 52.0, "RP": 31.0}}}
BETTER = {1: {"test": {"R@1": 55.0, "RP": 31.0}}, 0: {"test": {"R@1": 51.0, "RP": 30.0}}}
STUDY = Study("x", "X", "", None, (Arm("baseline"), Arm("iaa", against="baseline", paper={"cub": 62.1})))


def experiment(base=BASE, better=BETTER):
    return tabulate(STUDY, {"baseline": base, "iaa": better}, seconds={"baseline": [1.0], "iaa": [2.0, 4.0]})


def test_arms_are_paired_by_seed_whatever_their_order():
    result = summary(experiment())["test"]["R@1"]
    assert result["baseline"]["values"] == [50.0, 52.0]
    assert result["iaa"]["values"] == [51.0, 55.0]
    assert result["iaa"]["mean"] == 53.0
    gain = result["iaa"]["against_baseline"]
    assert gain["difference"] == 2.0
    assert gain["deviation"] == pytest.approx(2**0.5)
    assert gain["p_flip"] == gain["least"] == 0.5
    assert "against_baseline" not in result["baseline"]


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
    result = experiment({0: BASE[0]}, {0: BETTER[0]})
    assert metric_table(result, "test")[2] == ["", "iaa", "51.00", "+1.00", "-", "1.000"]


def test_seeds_must_be_equal():
    with pytest.raises(ValueError, match=r"iaa must have the seeds \[0, 1\], got \[0\]"):
        experiment(better={0: BETTER[0]})


def test_a_table_of_arms_has_the_gain_in_the_first_metric():
    head, baseline, arm = arm_table(experiment(), "test")
    assert head == ["arm", "R@1", "RP", "R@1 gained", "over", "p (t)", "paper, cub"]
    assert baseline == ["baseline", "51.00 ± 1.41", "30.50 ± 0.71", "", "", "", ""]
    assert arm == ["iaa", "53.00 ± 2.83", "30.50 ± 0.71", "+2.00 ± 1.41", "baseline", "0.295", "62.1"]


def test_pages_and_files_hold_every_number():
    result = experiment()
    page = markdown("Title", {"test": arm_table(result, "test")}, ["a note"])
    assert page.startswith("# Title\n\n| arm | R@1 |")
    assert page.endswith("\n- a note\n")
    lines = comma_separated(result).splitlines()
    assert lines[0] == "arm,series,x,changes,test,metric,seed,score"
    assert lines[1] == "baseline,,,,test,R@1,0,50.0"
    assert len(lines) == 1 + 2 * 2 * 2
    assert mean_scores(result.rows[1], "test") == {"R@1": 53.0, "RP": 30.5}
    assert result.rows[1].training_seconds == 3.0


def enumerated(a, b):
    """Every pattern of signs, one by one."""
    gains = [y - x for x, y in zip(a, b, strict=True)]
    patterns = list(itertools.product((1, -1), repeat=len(gains)))
    sums = [abs(sum(sign * gain for sign, gain in zip(signs, gains, strict=True))) for signs in patterns]
    return sum(value >= abs(sum(gains)) - 1e-9 for value in sums) / len(patterns)


@pytest.mark.parametrize("n", [2, 3, 5, 9])
def test_against_scipy_and_literal_enumeration(n):
    draw = np.random.default_rng(n)
    a = draw.normal(50, 1, n)
    b = a + draw.normal(0.4, 0.7, n)
    result = paired(a.tolist(), b.tolist())
    assert result.difference == pytest.approx(b.mean() - a.mean())
    assert result.deviation == pytest.approx(np.std(b - a, ddof=1))
    assert result.p_t == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert result.p_flip == enumerated(a, b)
    if n > 2:
        whole = stats.permutation_test(
            (a, b), lambda x, y: np.mean(y - x), permutation_type="samples", n_resamples=np.inf
        )
        assert result.p_flip == pytest.approx(whole.pvalue)


def test_the_order_of_arms_changes_the_sign_alone():
    a, b = [1.0, 2.0, 4.0], [2.0, 2.5, 3.0]
    one, other = paired(a, b), paired(b, a)
    assert one.difference == -other.difference
    assert (one.p_t, one.p_flip) == (other.p_t, other.p_flip)


def test_ties_count_as_extreme_in_spite_of_rounding():
    assert paired([0.0, 0.0, 0.0], [0.1, 0.2, 0.3]).p_flip == 0.25
    assert paired([0.0, 0.0, 0.0], [0.3, -0.1, -0.2]).p_flip == 1.0


def test_equal_arms_and_constant_gains():
    same = paired([1.0, 2.0], [1.0, 2.0])
    assert (same.difference, same.p_t, same.p_flip) == (0.0, None, 1.0)
    constant = paired([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
    assert (constant.p_t, constant.p_flip, constant.least) == (None, 0.25, 0.25)


def test_one_seed_tests_nothing():
    result = paired([1.0], [2.0])
    assert (result.deviation, result.p_t, result.p_flip, result.least) == (None, None, 1.0, 1.0)
    assert "One seed proves nothing" in caution(1)
    assert json.loads(json.dumps(asdict(result), allow_nan=False))["p_t"] is None


def test_many_seeds_leave_the_flips_out():
    result = paired([0.0] * 21, np.linspace(-1, 2, 21).tolist())
    assert result.p_flip is None
    assert result.p_t is not None


def test_caution_says_what_can_be_reached():
    assert "smallest p the sign-flip test can give is 0.0625; 6 seeds" in caution(5)
    assert caution(6) == ""


def test_spread():
    assert spread([1.0, 3.0]) == (2.0, pytest.approx(np.sqrt(2)))
    assert spread([1.0]) == (1.0, None)


def test_unequal_arms_are_refused():
    with pytest.raises(ValueError, match="one score per seed, got 2 and 1"):
        paired([1.0, 2.0], [1.0])
