from iaa.analysis.regression import best_untrained, regression_note, untrained_rows

TABLE = {
    "pixels": {"test": {"R@1": 12.0, "MAP@R": 3.0}},
    "frozen lite0": {"test": {"R@1": 85.0, "MAP@R": 47.1}},
    "trained": {"test": {"R@1": 60.8, "MAP@R": 27.5}},
    "trained, last epoch": {"test": {"R@1": 61.0, "MAP@R": 27.9}},
}
UNTRAINED = untrained_rows(TABLE, "test")


def test_the_best_row_before_training_is_the_reference():
    assert set(UNTRAINED) == {"pixels", "frozen lite0"}
    assert untrained_rows(TABLE, "small") == {}
    assert best_untrained(UNTRAINED) == "frozen lite0"
    assert best_untrained({}) is None
    assert best_untrained({"a": {"R@1": 3.0}, "b": {"R@1": 4.0}}) == "b"


def test_a_loss_is_said_with_what_to_do():
    note = regression_note(TABLE["trained"]["test"], UNTRAINED)
    assert note.startswith(
        "Training made search worse: R@1 60.8 instead of 85.0 and MAP@R 27.5 instead of 47.1 "
        "for 'frozen lite0'. Keep using that"
    )
    assert "--optimizer.lr" in note


def test_where_heads_were_compared_the_frozen_one_can_be_named():
    note = regression_note({"R@1": 60.0}, {"frozen": {"R@1": 85.0}})
    assert note.endswith("instead of 85.0 for 'frozen'. --network.head none keeps the network frozen.")


def test_one_metric_alone_is_a_loss_in_part():
    note = regression_note({"R@1": 84.2, "MAP@R": 52.7}, UNTRAINED, name="iaa")
    assert note.startswith("iaa made search worse in part: R@1 84.2 instead of 85.0 for 'frozen lite0'")
    assert "MAP@R" not in note


def test_a_gain_a_tie_and_nothing_to_compare_with_are_silent():
    assert regression_note({"R@1": 86.0, "MAP@R": 48.0}, UNTRAINED) == ""
    assert regression_note({"R@1": 84.97, "MAP@R": 47.1}, UNTRAINED) == ""
    assert regression_note({"R@1": 10.0}, {}) == ""


def test_a_frozen_network_that_is_better_at_its_own_size_says_what_to_leave_out():
    rows = {"frozen": {"MAP@R": 20.0}, "frozen (224 px)": {"MAP@R": 40.0}}
    assert "Leave --images.size out" in regression_note({"MAP@R": 30.0}, rows)
