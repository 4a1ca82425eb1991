import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from iaa.data.sampler import BalancedSampler, Numbered, balanced_plan


def long_tail(classes=60, seed=0):
    sizes = np.minimum(np.random.default_rng(seed).zipf(1.5, classes), 200)
    labels = np.repeat(np.arange(classes) * 7 + 3, sizes)  # ids need not be contiguous
    return np.random.default_rng(seed).permutation(labels)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=2, max_size=40),
    classes=st.integers(2, 12),
    per_class=st.integers(1, 6),
    world_size=st.integers(1, 4),
    small=st.sampled_from(["take", "repeat"]),
    seed=st.integers(0, 5),
)
def test_every_plan_is_balanced(sizes, classes, per_class, world_size, small, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    options = {"classes": classes, "per_class": per_class, "small": small, "world_size": world_size}
    plan = balanced_plan(labels, **options, seed=seed)
    dealt = np.zeros(len(sizes), dtype=int)
    assert len(plan) % world_size == 0
    for batch in range(len(plan)):
        rows = plan[batch]
        seen, counts = np.unique(labels[rows], return_counts=True)
        dealt[seen] += 1
        assert 2 <= len(seen) <= classes  # never a batch of one class
        wanted = per_class if small == "repeat" else np.minimum(np.array(sizes)[seen], per_class)
        assert (counts == wanted).all()
        enough = np.isin(labels[rows], np.flatnonzero(np.array(sizes) >= per_class))
        assert len(set(rows[enough])) == enough.sum()  # no image twice where the class has enough
    assert (dealt == dealt[0]).all()  # every class equally often
    assert dealt[0] >= 1  # no class starved


def test_batches_are_nearly_equal_and_none_is_a_leftover():
    labels = np.repeat(np.arange(101), 4)
    plan = balanced_plan(labels, classes=100, per_class=4)
    assert [len(np.unique(labels[plan[b]])) for b in range(len(plan))] == [50, 51]


def test_an_epoch_shows_about_every_image_once():
    labels = np.repeat(np.arange(100), 60)
    plan = balanced_plan(labels, classes=32, per_class=4)
    assert len(plan.rows) == len(np.unique(plan.rows)) == 6000


def test_a_class_is_gone_through_before_an_image_comes_again():
    labels = np.repeat([0, 1], [12, 3])
    plan = balanced_plan(labels, classes=2, per_class=3, rounds=4)
    rows, counts = np.unique(plan.rows, return_counts=True)
    assert rows.tolist() == list(range(15))
    assert (counts[:12] == 1).all()
    assert (counts[12:] == 4).all()


def test_the_plan_is_a_function_of_seed_and_epoch_alone():
    labels = long_tail()

    def rows(**keys):
        return balanced_plan(labels, classes=8, per_class=4, **keys).rows.tolist()

    assert rows(seed=1, epoch=2) == rows(seed=1, epoch=2)
    assert rows(seed=1, epoch=2) != rows(seed=1, epoch=3)
    assert rows(seed=1, epoch=2) != rows(seed=2, epoch=1)


def test_ranks_share_one_plan_and_distinct_classes_at_each_step():
    labels = long_tail()
    ranks = [
        list(BalancedSampler(labels, classes=6, per_class=4, rank=rank, world_size=3, seed=5))
        for rank in range(3)
    ]
    plan = balanced_plan(labels, classes=6, per_class=4, world_size=3, seed=5)
    assert len({len(batches) for batches in ranks}) == 1
    dealt = [batch for step in zip(*ranks, strict=True) for batch in step]
    assert dealt == [plan[b].tolist() for b in range(len(plan))]
    for step in zip(*ranks, strict=True):
        classes = [np.unique(labels[batch]) for batch in step]
        assert len(np.unique(np.concatenate(classes))) == sum(map(len, classes))


def test_a_run_resumes_in_the_middle_of_an_epoch():
    labels = torch.from_numpy(long_tail())
    sampler = BalancedSampler(labels, classes=8, per_class=4, seed=3)
    sampler.set_epoch(4)
    whole = list(sampler)
    resumed = BalancedSampler(labels, classes=8, per_class=4, seed=3)
    resumed.set_epoch(sampler.epoch, start=2)
    assert (resumed.epoch, len(resumed)) == (4, len(whole) - 2)
    assert list(resumed) == whole[2:]
    resumed.set_epoch(5)
    assert len(resumed) == len(sampler)


def test_the_fingerprint_depends_on_labels_and_options():
    labels = long_tail()
    options = {"classes": 8, "per_class": 4, "seed": 3}
    variants = [options, options | {"per_class": 5}, options | {"seed": 4}, options | {"world_size": 2}]
    prints = [BalancedSampler(labels, **given).fingerprint for given in variants]
    prints.append(BalancedSampler(labels[:-1], **options).fingerprint)
    assert len(set(prints)) == 5
    assert BalancedSampler(labels.copy(), **options).fingerprint == prints[0]


def test_a_hundred_thousand_classes_take_no_loop_over_classes():
    labels = np.repeat(np.arange(100_000), 5)
    start = time.process_time()
    plan = balanced_plan(labels, classes=32, per_class=4)
    assert time.process_time() - start < 2
    assert len(plan) == 3125


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([0, 0, 0], {"classes": 2}, "at least 2 classes, got 1"),
        ([0, 1], {"classes": 1}, "classes >= 2"),
        ([0, 1], {"classes": 2, "small": "repaet"}, "did you mean 'repeat'"),
    ],
)
def test_what_cannot_be_balanced_is_refused(labels, options, message):
    with pytest.raises(ValueError, match=message):
        balanced_plan(labels, per_class=2, **options)


def test_a_rank_outside_the_world_is_refused():
    with pytest.raises(ValueError, match=r"rank must lie in \[0, 2\), got 2"):
        BalancedSampler([0, 1], classes=2, per_class=1, rank=2, world_size=2)


def test_numbers_depend_on_seed_epoch_and_place_alone():
    def numbered(*, rank=0, world_size=1, epoch=0, start=0, seed=0):
        options = {"classes": 8 // world_size, "per_class": 3, "seed": seed}
        sampler = BalancedSampler(long_tail(), **options, rank=rank, world_size=world_size)
        sampler.set_epoch(epoch, start=start)
        assert len(Numbered(sampler)) == len(sampler)
        return list(Numbered(sampler))

    whole = numbered()
    assert [[row for row, _ in batch] for batch in whole] == list(
        BalancedSampler(long_tail(), classes=8, per_class=3)
    )
    assert numbered(start=3) == whole[3:]
    halves = zip(numbered(rank=0, world_size=2), numbered(rank=1, world_size=2), strict=True)
    assert [first + second for first, second in halves] == whole
    numbers = [number for batch in whole for _, number in batch]
    for other in (numbered(epoch=1), numbered(seed=1)):
        assert not set(numbers) & {number for batch in other for _, number in batch}
    assert len(set(numbers)) == len(numbers)
    bits = np.array([[number >> bit & 1 for bit in range(64)] for number in numbers])
    assert abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / len(numbers) ** 0.5
