import math
from dataclasses import replace

import pytest
import torch

import iaa
import oracles
from iaa.method import neighbors
from iaa.method.correction import lenders
from iaa.method.gaussians import ClassStats

SIZES = [1, 2, 3, 0, 8, 1, 50, 5, 4, 2, 41, 40]


def classes_of(sizes: list[int], dim: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.tensor([k for k, size in enumerate(sizes) for _ in range(size)])
    spread = torch.rand(len(sizes), dim) + 0.1
    return torch.randn(len(labels), dim) * spread[labels] + torch.randn(len(sizes), dim)[labels], labels


def stats_of(sizes: list[int], dim: int = 4) -> tuple[ClassStats, tuple]:
    z, labels = classes_of(sizes, dim)
    return iaa.estimate(z.double(), labels, num_classes=len(sizes)), oracles.estimate(z, labels, len(sizes))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale": None},
        {"neighbors": 3},
        {"neighbors": 0},
        {"neighbors": 1, "global_share": 0.0},
        {"mean_width": 0.3, "cov_width": 2.0, "falloff": 1.0},
        {"mean_width": math.inf, "cov_width": math.inf},
        {"few": 4},
        {"few": math.inf, "falloff": 0.0},
        {"global_share": 1.0},
    ],
)
def test_correct_is_equations_11_to_16(options):
    stats, (count, mean, covariance) = stats_of(SIZES)
    expected = oracles.correct(count, mean, covariance, **options).diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(iaa.correct(stats, **options), expected, rtol=1e-9, atol=1e-12)


def test_many_classes_in_blocks_are_still_the_equations(monkeypatch):
    monkeypatch.setattr(neighbors, "SMALL", 8)  # matrix products and groups instead of plain differences
    monkeypatch.setattr(neighbors, "BLOCK", 1)
    sizes = [1 + i % 6 for i in range(150)]
    stats, (count, mean, covariance) = stats_of(sizes, dim=3)
    expected = oracles.correct(count, mean, covariance, neighbors=7).diagonal(dim1=1, dim2=2)
    corrected = iaa.correct(stats, neighbors=7)
    torch.testing.assert_close(corrected, expected, rtol=1e-7, atol=1e-9)
    single = iaa.correct(stats.to(torch.float32), neighbors=7)
    torch.testing.assert_close(single.double(), expected, rtol=1e-4, atol=1e-6)


def test_a_part_of_the_classes_is_corrected_as_within_all():
    stats, _ = stats_of(SIZES)
    some = torch.tensor([7, 0, 10, 3])
    torch.testing.assert_close(iaa.correct(stats, classes=some), iaa.correct(stats)[some])


def test_neighbors_are_other_classes_that_can_lend_ties_by_lower_index():
    count = torch.tensor([1, 2, 2, 1, 2, 2, 0])
    mean = torch.tensor([[0.0], [1.0], [-1.0], [1.0], [1.0], [3.0], [1.0]])  # squares: 0 1 1 1 1 9 1
    stats = ClassStats(count, mean, torch.ones(7, 1))
    near, shares = lenders(stats, torch.arange(7), neighbors=3)
    assert near[:6].tolist() == [[1, 2, 4], [2, 4, 5], [1, 4, 5], [1, 2, 4], [1, 2, 5], [1, 2, 4]]
    torch.testing.assert_close(shares.sum(1), torch.tensor([1.0] * 6 + [0.0]))


def test_k_is_capped_by_the_lenders_there_are():
    stats, _ = stats_of([1, 1, 3, 2, 1])
    near, shares = lenders(stats, torch.arange(5), neighbors=25)
    assert near.shape == (5, 2)
    assert shares[2].max() == 1  # the other lender alone
    assert near[2, shares[2].argmax()] == 3


def test_more_neighbors_than_lenders_in_blocks(monkeypatch):
    monkeypatch.setattr(neighbors, "SMALL", 4)
    sizes = [2 + i % 3 for i in range(41)]
    stats, (count, mean, covariance) = stats_of(sizes, dim=3)
    expected = oracles.correct(count, mean, covariance, neighbors=60).diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(iaa.correct(stats, neighbors=60), expected, rtol=1e-6, atol=1e-8)


def test_without_any_lender_the_global_variance_stands_in():
    stats, _ = stats_of([1, 1, 5])  # the only lender cannot lend to itself
    corrected = iaa.correct(stats)
    alpha = iaa.correction_weight(torch.tensor([5]))
    overall = iaa.global_variance(stats)
    torch.testing.assert_close(corrected[2], (1 - alpha) * stats.variance[2] + alpha * overall)
    torch.testing.assert_close(corrected[0], 0.9 * stats.variance[2] + 0.1 * overall)


def test_weight_of_correction_is_equation_16():
    count = torch.arange(1, 60)
    for falloff in (0.0, 0.1, 1.0):
        weight = iaa.correction_weight(count, falloff=falloff)
        expected = [oracles.correction_weight(int(n), falloff) for n in count]
        torch.testing.assert_close(weight, torch.tensor(expected))
    assert iaa.correction_weight(torch.tensor([0])) == 1  # never more than all


def test_few_zero_changes_nothing():
    stats, _ = stats_of(SIZES)
    assert torch.equal(iaa.correct(stats, few=0), stats.variance)


def test_infinite_widths_average_by_size_alone():
    stats, _ = stats_of([1, 3, 6, 9])
    _, shares = lenders(stats, torch.tensor([0]), mean_width=math.inf, cov_width=math.inf)
    torch.testing.assert_close(shares.sort().values[0], torch.tensor([3, 6, 9]).double() / 18)


@pytest.mark.parametrize("scale", ["minmax", None])
@pytest.mark.parametrize("size", [1e4, 1e-12])
def test_extreme_scales_stay_finite_and_not_negative(scale, size):
    z, labels = classes_of(SIZES)
    stats = iaa.estimate(z * size, labels, num_classes=len(SIZES))
    corrected = iaa.correct(stats, scale=scale)
    assert corrected.isfinite().all()
    assert (corrected >= 0).all()


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1e10, 1e15])
@pytest.mark.parametrize("small", [True, False])
def test_float32_is_as_accurate_at_any_scale(monkeypatch, size, small):
    if not small:
        monkeypatch.setattr(neighbors, "SMALL", 8)
    z, labels = classes_of([1 + i % 6 for i in range(60)])
    stats = iaa.estimate((z * size).float(), labels, num_classes=60)
    exact = oracles.estimate(z.double() * size, labels, 60)
    expected = oracles.correct(*exact, neighbors=7).diagonal(dim1=1, dim2=2)
    corrected = iaa.correct(stats, neighbors=7).double()
    torch.testing.assert_close(corrected / size**2, expected / size**2, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [1e-12, 1e10, 1e15])
def test_raw_distances_are_as_printed_at_any_scale(size):
    z, labels = classes_of(SIZES)
    stats = iaa.estimate((z * size).float(), labels, num_classes=len(SIZES))
    exact = oracles.estimate(z.double() * size, labels, len(SIZES))
    widths = {"mean_width": 0.4 * size**2, "cov_width": 0.3 * size**2, "scale": None}
    expected = oracles.correct(*exact, **widths).diagonal(dim1=1, dim2=2)
    corrected = iaa.correct(stats, **widths).double()
    torch.testing.assert_close(corrected / size**2, expected / size**2, rtol=1e-4, atol=1e-6)


def test_statistics_that_are_not_finite_are_refused_by_class():
    stats, _ = stats_of(SIZES)
    for name, value in (("mean", torch.nan), ("variance", torch.inf)):
        values = getattr(stats, name).clone()
        values[2, 1] = value
        broken = replace(stats, **{name: values})
        for function in (iaa.correct, iaa.global_variance, iaa.mean_distance, iaa.cov_distance, iaa.spearman):
            with pytest.raises(ValueError, match=rf"NaN or infinity in the {name} of class 2"):
                function(broken)


def test_half_precision_statistics_are_corrected_in_float32():
    stats, _ = stats_of(SIZES)
    half = stats.to(torch.float16)
    expected = iaa.correct(half.to(torch.float32))
    assert torch.equal(iaa.correct(half), expected)


@pytest.mark.parametrize(
    ("z", "labels", "classes"),
    [
        (torch.ones(12, 3), torch.arange(12) % 4, 4),  # all classes equal, no variance
        (torch.randn(6, 3).repeat(3, 1), torch.arange(18) // 6, 3),  # equal classes with variance
        (torch.randn(9, 3), torch.zeros(9, dtype=torch.long), 1),  # one class in all
        (torch.randn(9, 1), torch.arange(9) % 3, 3),  # one dimension
        (torch.randn(5, 3), torch.arange(5), 5),  # nothing but singletons
        (torch.randn(1, 3), torch.zeros(1, dtype=torch.long), 4),  # a single sample in the world
    ],
)
def test_degenerate_data_never_gives_nan(z, labels, classes):
    for scale in ("minmax", None):
        corrected = iaa.correct(iaa.estimate(z, labels, num_classes=classes), scale=scale)
        assert corrected.isfinite().all()
        assert (corrected >= 0).all()


def test_equal_classes_keep_their_variance():
    z = torch.randn(30, 5).repeat(4, 1)
    stats = iaa.estimate(z, torch.arange(120) // 30, num_classes=4)
    torch.testing.assert_close(iaa.correct(stats), stats.variance)


def test_correct_is_differentiable():
    z, labels = classes_of([1, 2, 3, 4, 2], dim=2)

    def corrected(z):
        return iaa.correct(iaa.estimate(z, labels, num_classes=5), neighbors=2)

    torch.autograd.gradcheck(corrected, z.double().requires_grad_())


def test_approximate_search_finds_neighbors_of_grouped_classes():
    families = torch.randn(40, 16)
    mean = families[torch.arange(2000) % 40] + 0.3 * torch.randn(2000, 16)
    stats = ClassStats(torch.randint(1, 9, (2000,)), mean, torch.rand(2000, 16))
    asked = torch.arange(0, 2000, 7)
    near, shares = lenders(stats, asked, neighbors=10, search="approximate")
    exact, _ = lenders(stats, asked, neighbors=10)
    assert (exact[:, :, None] == near[:, None]).any(2).float().mean() > 0.9
    assert not (near == asked[:, None]).any()
    assert (stats.count[near] >= 2).all()
    torch.testing.assert_close(shares.sum(1), torch.ones(len(asked)))


def test_approximate_search_finds_nearly_the_same():
    sizes = [2 + i % 3 for i in range(600)]
    z, labels = classes_of(sizes, dim=6)
    stats = iaa.estimate(z, labels, num_classes=600)
    exact, _ = lenders(stats, torch.arange(600), neighbors=5)
    found, _ = lenders(stats, torch.arange(600), neighbors=5, search="approximate")
    shared = (exact[:, :, None] == found[:, None]).any(2).float().mean()
    assert shared > 0.9
    assert not (found == torch.arange(600)[:, None]).any()
    change = (iaa.correct(stats, search="approximate") - iaa.correct(stats)).abs().mean()
    assert change < 0.05 * stats.variance.mean()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neighbors": -1}, "neighbors must be at least 0, got -1"),
        ({"mean_width": 0}, "mean_width must be above 0, got 0"),
        ({"cov_width": -2.0}, r"cov_width must be above 0, got -2\.0"),
        ({"global_share": 1.5}, r"global_share must lie in \[0, 1\], got 1\.5"),
        ({"falloff": -0.1}, r"falloff must be at least 0, got -0\.1"),
        ({"few": math.nan}, "few must be at least 0, got nan"),
        ({"scale": "minmx"}, "did you mean 'minmax'"),
        ({"search": "aprox"}, "did you mean 'approximate'"),
    ],
)
def test_bad_options_are_named(options, message):
    stats, _ = stats_of(SIZES)
    with pytest.raises(ValueError, match=message):
        iaa.correct(stats, **options)


@pytest.mark.usefixtures("unchecked")
def test_options_of_the_wrong_type_are_named():
    stats, _ = stats_of(SIZES)
    with pytest.raises(TypeError, match=r"neighbors must be a whole number, got 2\.5"):
        iaa.correct(stats, neighbors=2.5)
    with pytest.raises(TypeError, match="few must be a number, got '40'"):
        iaa.correct(stats, few="40")
