import pytest
import torch

from iaa.retrieval.classify import Identifier
from iaa.retrieval.open_set import _equal_rates, _student, calibrate, draw_shots, rate


def blobs(classes=12, each=9, dim=6, *, noise=0.3, seed=0):
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(each)
    centre = torch.randn(classes, dim, generator=g)
    return centre[labels] + noise * torch.randn(len(labels), dim, generator=g), labels


@pytest.mark.parametrize("how", ["image", "mean", "gaussian"])
@pytest.mark.parametrize("each", [2, 6, 15])
def test_the_printed_rate_is_the_measured_one_for_classes_outside(how, each):
    """The rates hold for 200 further classes and for new images, whatever the size of the classes."""
    z, labels = blobs(classes=240, each=each + 6, dim=16, noise=0.7)
    known = labels < 40
    taken = draw_shots(labels, each, torch.Generator().manual_seed(1)) & known
    found = calibrate(z[taken], labels[taken], how=how)
    gallery = Identifier(z[taken], labels[taken], how=how)
    caught = gallery.rank(z[~known], top=1).score[:, 0] < found.score
    assert found.unknown_caught.low <= float(caught.double().mean()) <= found.unknown_caught.high
    kept = float((gallery.rank(z[known & ~taken], top=1).score[:, 0] >= found.score).double().mean())
    assert kept >= found.known_kept.low
    if each > 6:  # of few images one less is much: known queries find it harder than they will
        assert kept <= found.known_kept.high
    assert found.classes == 40
    assert found.shots == each


def test_the_threshold_of_seven_images_is_not_that_of_fifteen():
    """Calibrated at smaller classes than the gallery has, the rate would not hold."""
    z, labels = blobs(classes=200, each=15, dim=16, noise=0.5)
    known = labels < 60
    whole = calibrate(z[known], labels[known], how="image")
    small = calibrate(z[known], labels[known], how="image", shots=3)
    assert small.shots == 3
    scores = Identifier(z[known], labels[known], how="image").rank(z[~known], top=1).score[:, 0]
    inside = [
        found.unknown_caught.low <= float((scores < found.score).double().mean()) <= found.unknown_caught.high
        for found in (whole, small)
    ]
    assert inside == [True, False]


def test_it_is_seeded_and_sees_each_class_held_out_once():
    z, labels = blobs(classes=30, each=5)
    assert calibrate(z, labels, how="mean") == calibrate(z, labels, how="mean")
    assert calibrate(z, labels, how="mean", seed=1) != calibrate(z, labels, how="mean")


def test_only_rows_that_may_ask_are_asked():
    z, labels = blobs(classes=40, each=6, dim=16, noise=0.02)
    easy = labels < 30
    z[~easy] += 0.7 * torch.randn(int((~easy).sum()), 16, generator=torch.Generator().manual_seed(1))
    found = calibrate(z, labels, asks=~easy, how="mean")
    assert found.classes == 10
    assert found.auroc < calibrate(z, labels, how="mean").auroc


def test_an_interval_over_classes_is_wider_where_images_of_a_class_agree():
    labels = torch.arange(40).repeat_interleave(10)
    together, apart = labels % 2 == 0, torch.arange(400) % 2 == 0
    wide, narrow = rate(together, labels), rate(apart, labels)
    assert wide.share == narrow.share == 0.5
    assert wide.high - wide.low > 2.5 * (narrow.high - narrow.low)
    assert rate(torch.ones(400, dtype=torch.bool), labels).low < 0.95  # nothing is certain from 40 classes
    assert str(rate(together, labels)).startswith("50 % (")
    one = rate(apart[:10], labels[:10])
    assert (one.low, one.high) == (0.0, 1.0)


def test_the_interval_covers_what_it_should():
    """95 % of the intervals over classes of their own rate hold the rate of all classes."""
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(20).repeat_interleave(8)
    inside = 0
    for _ in range(400):
        p = torch.rand(20, generator=g).sqrt()  # mean 2/3
        found = rate(torch.rand(160, generator=g) < p[labels], labels)
        inside += found.low <= 2 / 3 <= found.high
    assert 0.92 <= inside / 400 <= 0.985


@pytest.mark.parametrize(("freedom", "quantile"), [(7, 2.3646), (20, 2.0860), (99, 1.9842)])
def test_students_quantile(freedom, quantile):
    assert _student(freedom) == pytest.approx(quantile, rel=1e-3)


def test_the_threshold_keeps_as_many_as_it_catches():
    g = torch.Generator().manual_seed(0)
    known, unknown = torch.randn(50, generator=g) + 1, torch.randn(70, generator=g)
    score = _equal_rates(known, unknown)
    gap = abs(float((known >= score).double().mean() - (unknown < score).double().mean()))
    for cut in torch.linspace(-3, 4, 500):
        assert abs(float((known >= cut).double().mean() - (unknown < cut).double().mean())) >= gap - 1e-9


def test_an_interval_counts_a_class_as_one_that_asks_and_as_one_that_answers():
    """Half of the classes come in pairs that are taken for each other: both miss, so the pairs count."""
    labels = torch.arange(40).repeat_interleave(10)
    paired = labels < 20
    hit, without = ~paired, torch.ones(400, dtype=torch.bool)
    nearest = torch.where(paired, labels ^ 1, 39 - labels)
    alone, both = rate(hit, labels), rate(hit, labels, nearest=nearest, without=without)
    assert both.share == alone.share == 0.5
    assert 1.3 < (both.high - both.low) / (alone.high - alone.low) < 2


def test_the_interval_covers_classes_outside_where_some_resemble_each_other():
    """Galleries drawn from groups of similar classes: the rate of further classes lies within."""
    inside = 0
    for seed in range(40):
        g = torch.Generator().manual_seed(seed)
        groups = torch.randint(0, 40, (120,), generator=g)
        centre = torch.randn(40, 12, generator=g)[groups] + 0.45 * torch.randn(120, 12, generator=g)
        labels = torch.arange(120).repeat_interleave(6)
        z = centre[labels] + 0.5 * torch.randn(720, 12, generator=g)
        known = labels < 30
        found = calibrate(z[known], labels[known], how="mean")
        scores = Identifier(z[known], labels[known], how="mean").rank(z[~known], top=1).score[:, 0]
        rate_outside = float((scores < found.score).double().mean())
        inside += found.unknown_caught.low <= rate_outside <= found.unknown_caught.high
    assert inside >= 36


def test_too_little_to_learn_a_threshold_from_is_said():
    z, labels = blobs(classes=7)
    with pytest.raises(ValueError, match="needs 8 classes or more to hold some out in turns, got 7"):
        calibrate(z, labels)
    z, labels = blobs(classes=8, each=1)
    with pytest.raises(ValueError, match="needs classes of two images or more"):
        calibrate(z, labels)
    with pytest.raises(ValueError, match=r"cannot be told apart: their AUROC is 0\.\d\d"):
        calibrate(torch.randn(60, 4), torch.arange(60) % 12, how="mean")
