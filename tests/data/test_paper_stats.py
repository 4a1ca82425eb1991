import numpy as np
import pytest

from iaa.data.dataset import make
from iaa.data.paper_stats import PAPER, Facts, contradictions, differences, facts, histogram, summary


def sized(sizes, *, split="train"):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return make("made", ["x.png"] * len(labels), labels, [split] * len(labels))


def test_facts_are_those_of_table_2():
    assert facts(sized([1, 2, 3, 6])) == Facts(12, 4, 6, 1, 3.0, 1.9)


def test_summary_distinguishes_queries_and_gallery():
    dataset = make(
        "m",
        list("abcd"),
        [0, 0, 1, 1],
        ["train", "train", "test", "test"],
        role=["both"] * 2 + ["query", "gallery"],
    )
    assert {name: row.samples for name, row in summary(dataset).items()} == {
        "all": 4,
        "train": 2,
        "test": 2,
        "query": 1,
        "gallery": 1,
    }


def test_the_papers_own_slips_are_computed():
    assert [name for name in PAPER if contradictions(name)] == ["inshop", "vehicleid"]
    inshop = contradictions("inshop")
    assert "25,882 (train) + 28,760 (test) = 54,642 samples, but it says 52,712 (all)" in inshop
    assert "14,218 (query) + 12,612 (gallery) = 26,830 samples, but it says 28,760 (test)" in inshop
    assert "221,763" in contradictions("vehicleid")[0]


def test_differences_name_part_and_number():
    counts = {"train": Facts(5_864, 100, 60, 41, 58.6, 3.5), "test": Facts(5_923, 100)}
    assert differences("cub", counts) == ["test samples: 5,923 here, 5,924 in the paper"]
    assert differences("emoji", counts) == []


@pytest.mark.parametrize(
    "sizes", [[1, 2, 2, 7], [41, 60, 55, 58, 43], [1, 3, 900, 17, 64, 63], [5, 5], [3, 40, 90]]
)
def test_the_histogram_counts_every_class_once(sizes):
    bars = histogram(sized(sizes))
    assert sum(number for *_, number in bars) == len(sizes)
    for low, high, number in bars:
        assert number == sum(low <= size <= high for size in sizes)
