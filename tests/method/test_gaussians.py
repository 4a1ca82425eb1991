import subprocess
import sys

import pytest
import torch

import iaa
import oracles
from iaa.method.gaussians import ClassStats


def long_tail(samples: int = 60, dim: int = 5, classes: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    """Classes of very different size: the last has no sample at all, the one before a single one."""
    share = 1 / torch.arange(1.0, classes - 1)
    labels = torch.cat([torch.multinomial(share, samples, replacement=True), torch.tensor([classes - 2])])
    return torch.randn(samples + 1, dim) * torch.rand(classes, dim)[labels] + torch.randn(classes, dim)[
        labels
    ], labels


def test_estimate_is_equations_7_and_8():
    z, labels = long_tail()
    stats = iaa.estimate(z, labels, num_classes=7)
    count, mean, covariance = oracles.estimate(z, labels, 7)
    assert stats.count.tolist() == count
    torch.testing.assert_close(stats.mean.double(), mean, atol=1e-6, rtol=1e-5)
    variance = covariance.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(stats.variance.double(), variance, atol=1e-6, rtol=1e-5)


def test_classes_with_one_sample_or_none_have_no_variance():
    z, labels = long_tail()
    stats = iaa.estimate(z, labels, num_classes=7)
    assert stats.count[-2:].tolist() == [1, 0]
    assert stats.variance[-2:].count_nonzero() == 0
    torch.testing.assert_close(stats.mean[-2], z[-1])
    assert stats.mean[-1].count_nonzero() == 0


def test_large_means_do_not_eat_small_variances():
    labels = torch.arange(4000) % 4
    offset = torch.full((1, 3), 1e4, dtype=torch.double)
    z = (offset + torch.randn(4000, 3, dtype=torch.double)).float()
    stats = iaa.estimate(z, labels, num_classes=4)
    exact = iaa.estimate(z.double(), labels, num_classes=4)
    torch.testing.assert_close(stats.variance.double(), exact.variance, rtol=1e-3, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_embeddings_are_summed_in_float32(dtype):
    z, labels = long_tail()
    stats = iaa.estimate(z.to(dtype), labels, num_classes=7)
    expected = iaa.estimate(z.to(dtype).float(), labels, num_classes=7)
    assert stats.mean.dtype == torch.float32
    torch.testing.assert_close(stats.variance, expected.variance)


def test_autocast_does_not_touch_statistics():
    z, labels = long_tail()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        stats = iaa.estimate(z, labels, num_classes=7)
    assert torch.equal(stats.variance, iaa.estimate(z, labels, num_classes=7).variance)


def test_estimate_is_differentiable():
    z, labels = long_tail(samples=12, dim=2)
    torch.autograd.gradcheck(
        lambda z: iaa.estimate(z, labels, num_classes=7).variance, z.double().requires_grad_()
    )


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, 4])
@pytest.mark.parametrize("flag", [False, True])
def test_distances_are_equations_9_and_10(p, flag):
    z, labels = long_tail()
    stats = iaa.estimate(z.double(), labels, num_classes=7)
    by_mean = iaa.mean_distance(stats, p=p, squared=flag)
    by_cov = iaa.cov_distance(stats, p=p, root=flag)
    for i in range(7):
        for j in range(7):
            assert by_mean[i, j] == pytest.approx(oracles.mean_distance(stats.mean, i, j, p, flag))
            assert by_cov[i, j] == pytest.approx(oracles.cov_distance(stats.variance, i, j, p, flag))


def test_equal_classes_are_at_distance_zero():
    z = 1e3 * torch.randn(20, 64).repeat(2, 1)
    stats = iaa.estimate(z, torch.arange(40) // 20, num_classes=2)
    assert iaa.mean_distance(stats).count_nonzero() == 0
    assert iaa.cov_distance(stats).count_nonzero() == 0


def test_merge_of_parts_equals_the_whole():
    z, labels = long_tail(samples=300)
    whole = iaa.estimate(z, labels, num_classes=7)
    merged = iaa.estimate(z[:1], labels[:1], num_classes=7)
    for part in range(1, 301, 37):
        rows = slice(part, part + 37)
        merged = merged.merge(iaa.estimate(z[rows], labels[rows], num_classes=7))
    assert merged.count.tolist() == whole.count.tolist()
    torch.testing.assert_close(merged.mean, whole.mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(merged.variance, whole.variance, rtol=1e-5, atol=1e-6)


def test_merge_refuses_other_shapes():
    a = ClassStats(torch.zeros(2), torch.zeros(2, 3), torch.zeros(2, 3))
    b = ClassStats(torch.zeros(4), torch.zeros(4, 3), torch.zeros(4, 3))
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(4, 3\)"):
        a.merge(b)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("z", "labels", "message"),
    [
        (torch.zeros(3, 2), torch.tensor([0, 1, 5]), r"labels must lie in \[0, 4\), got 5 at position 2"),
        (torch.zeros(3, 2), torch.tensor([0, -1, 1]), r"labels must lie in \[0, 4\), got -1 at position 1"),
        (torch.zeros(3, 2), torch.tensor([0, 1]), "3 embeddings and 2 labels"),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.long), "empty batch"),
        (torch.zeros(3), torch.tensor([0, 1, 1]), r"shape \(samples, dimensions\), got \(3,\)"),
        (torch.zeros(3, 2), torch.zeros(3, 1, dtype=torch.long), r"shape \(samples,\), got \(3, 1\)"),
        (torch.tensor([[1.0], [torch.nan], [-torch.inf]]), torch.tensor([0, 1, 1]), "2 of 3 rows: 1, 2"),
    ],
)
def test_bad_batches_are_named(z, labels, message):
    with pytest.raises(ValueError, match=message):
        iaa.estimate(z, labels, num_classes=4)


@pytest.mark.usefixtures("unchecked")
def test_bad_types_are_named():
    with pytest.raises(TypeError, match=r"labels must hold integers, got torch\.float32"):
        iaa.estimate(torch.zeros(2, 2), torch.zeros(2), num_classes=2)
    with pytest.raises(TypeError, match=r"z must hold floating-point numbers, got torch\.int64"):
        iaa.estimate(torch.zeros(2, 2, dtype=torch.long), torch.zeros(2, dtype=torch.long), num_classes=2)
    with pytest.raises(ValueError, match="p must be at least 1, got 0"):
        iaa.mean_distance(iaa.estimate(torch.zeros(2, 2), torch.tensor([0, 1]), num_classes=2), p=0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_labels_may_be_any_integers(dtype):
    z, labels = long_tail()
    for classes in (7, 100_000):  # more than fit into a narrow type
        stats = iaa.estimate(num_classes=classes, z=z, labels=labels.to(dtype))
        assert torch.equal(stats.variance[:7], iaa.estimate(z, labels, num_classes=7).variance)
    augment = iaa.IAA(7, 5).fit(z, labels.to(dtype)).update(z, labels.to(dtype))
    assert augment(z, labels.to(dtype))[1].dtype == torch.int64


@pytest.mark.parametrize("size", [1e-12, 1e10, 1e15])
def test_distances_between_classes_keep_their_digits_at_any_scale(size):
    z, labels = torch.randn(40, 3), torch.arange(40) % 8
    stats = iaa.estimate(z, labels, num_classes=8)
    scaled = iaa.estimate(z * size, labels, num_classes=8)
    for distance in (iaa.mean_distance, iaa.cov_distance):
        expected = distance(stats).double()
        torch.testing.assert_close(distance(scaled).double() / size**2, expected, rtol=1e-4, atol=1e-6)
    assert iaa.spearman(scaled) == pytest.approx(iaa.spearman(stats), abs=0.02)


def test_what_overflows_is_refused_in_words():
    z = torch.randn(12, 3)
    with pytest.raises(
        ValueError, match=r"z is too large: its squares overflow float32 \(largest .*e\+2\d\)"
    ):
        iaa.estimate(z * 1e20, torch.arange(12) % 3, num_classes=3)
    stats = iaa.estimate((z * 1e20).double(), torch.arange(12) % 3, num_classes=3)
    assert iaa.correct(stats).isfinite().all()
    large = ClassStats(torch.full((3,), 4), torch.randn(3, 2) * 1e25, torch.ones(3, 2))
    with pytest.raises(ValueError, match="distances between classes overflow float32"):
        iaa.mean_distance(large)
    half = torch.full((6, 2), 65504.0, dtype=torch.float16)
    assert iaa.estimate(half, torch.arange(6) % 2, num_classes=2).mean.tolist() == [[65504.0] * 2] * 2


WORDS = """
import numpy, torch, iaa
z, labels = torch.randn(12, 3), torch.arange(12) % 3
stats = iaa.estimate(z, labels, num_classes=3)
for call in (
    lambda: iaa.estimate([[1.0], [1.0, 2.0]], labels, num_classes=3),
    lambda: iaa.correct(z),
    lambda: iaa.spearman(z.numpy()),
    lambda: iaa.score([[1.0], [1.0, 2.0]], [0, 1]),
    lambda: iaa.score(z, ["a"] * 12),
):
    try:
        call()
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
kinds = [(z, labels), (z.numpy(), labels.numpy()), (z.tolist(), labels.tolist())]
same = [iaa.score(*given, ks=(1,)) for given in kinds]
print(same[0] == same[1] == same[2])
means = [iaa.estimate(*given, num_classes=3).mean for given in kinds]
print(torch.equal(means[0], means[1]), torch.allclose(means[0], means[2]))
"""


def test_lists_and_arrays_are_accepted_or_refused_with_a_message():
    """In an interpreter of its own: here the types are checked before the functions see them."""
    out = subprocess.run([sys.executable, "-c", WORDS], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == [
        "ValueError z must be numbers in rows of one length, got list",
        "TypeError stats must be ClassStats, as iaa.estimate makes them, got Tensor",
        "TypeError stats must be ClassStats, as iaa.estimate makes them, got ndarray",
        "ValueError z must be numbers of shape (N, D), got a list",
        "ValueError labels must be integers of shape (N,), got a list",
        "True",
        "True True",
    ]
