import itertools
import json
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from iaa.analysis.paired_tests import caution, paired, spread


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
    found = paired(a.tolist(), b.tolist())
    assert found.difference == pytest.approx(b.mean() - a.mean())
    assert found.deviation == pytest.approx(np.std(b - a, ddof=1))
    assert found.p_t == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert found.p_flip == enumerated(a, b)
    if n > 2:
        whole = stats.permutation_test(
            (a, b), lambda x, y: np.mean(y - x), permutation_type="samples", n_resamples=np.inf
        )
        assert found.p_flip == pytest.approx(whole.pvalue)


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
    found = paired([1.0], [2.0])
    assert (found.deviation, found.p_t, found.p_flip, found.least) == (None, None, 1.0, 1.0)
    assert "One seed proves nothing" in caution(1)
    assert json.loads(json.dumps(asdict(found), allow_nan=False))["p_t"] is None


def test_many_seeds_leave_the_flips_out():
    found = paired([0.0] * 21, np.linspace(-1, 2, 21).tolist())
    assert found.p_flip is None
    assert found.p_t is not None


def test_caution_says_what_can_be_reached():
    assert "smallest p the sign-flip test can give is 0.0625; 6 seeds" in caution(5)
    assert caution(6) == ""


def test_spread():
    assert spread([1.0, 3.0]) == (2.0, pytest.approx(np.sqrt(2)))
    assert spread([1.0]) == (1.0, None)


def test_unequal_arms_are_refused():
    with pytest.raises(ValueError, match="one score per seed, got 2 and 1"):
        paired([1.0, 2.0], [1.0])
