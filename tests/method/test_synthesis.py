import pytest
import torch

import iaa


def test_draws_have_the_mean_and_variance_of_equation_17():
    z = torch.tensor([[1.0, -2.0, 0.0]])
    variance = torch.tensor([[0.5, 2.0, 0.0]])
    draws = iaa.synthesize(z, variance, strength=0.8, copies=20_000)[:, 0]
    torch.testing.assert_close(draws.mean(0), z[0], atol=0.05, rtol=0)
    torch.testing.assert_close(draws.var(0), 0.8 * variance[0], rtol=0.04, atol=0)


def test_shape_and_reproducibility():
    z, variance = torch.randn(5, 3), torch.rand(5, 3)
    first = iaa.synthesize(z, variance, copies=2, generator=torch.Generator().manual_seed(1))
    again = iaa.synthesize(z, variance, copies=2, generator=torch.Generator().manual_seed(1))
    assert first.shape == (2, 5, 3)
    assert torch.equal(first, again)
    assert not torch.equal(first[0], first[1])


def test_limits():
    z, variance = torch.randn(5, 3), torch.rand(5, 3)
    assert torch.equal(iaa.synthesize(z, variance, strength=0, copies=2), z.expand(2, 5, 3))
    assert iaa.synthesize(z, variance, copies=0).shape == (0, 5, 3)


def test_gradient_passes_to_the_original_unchanged():
    z = torch.randn(4, 3, requires_grad=True)
    iaa.synthesize(z, torch.rand(4, 3), copies=3).sum().backward()
    assert torch.equal(z.grad, torch.full((4, 3), 3.0))


def test_synthetics_keep_the_precision_of_the_originals():
    z = torch.randn(4, 3, dtype=torch.bfloat16)
    assert iaa.synthesize(z, torch.rand(4, 3)).dtype == torch.bfloat16


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": -0.1}, r"strength must be at least 0, got -0\.1"),
        ({"copies": -1}, "copies must be at least 0, got -1"),
        ({"variance": torch.rand(2, 3)}, r"variance must have z's shape \(4, 3\), got \(2, 3\)"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        iaa.synthesize(torch.randn(4, 3), **{"variance": torch.rand(4, 3), **options})


def test_lists_and_arrays_are_taken_and_others_refused_in_words():
    z, variance = torch.randn(4, 3), torch.rand(4, 3)
    drawn = [
        iaa.synthesize(given, var, generator=torch.Generator().manual_seed(0))
        for given, var in ((z, variance), (z.numpy(), variance.numpy()), (z.tolist(), variance.tolist()))
    ]
    assert all(torch.equal(drawn[0], other) for other in drawn)
    with pytest.raises(TypeError, match="floating-point"):
        iaa.synthesize([[1, 2]], [[1.0, 1.0]])


def test_float16_near_its_end_stays_finite():
    z = torch.full((50, 4), 65000.0, dtype=torch.float16)
    assert iaa.synthesize(z, torch.full((50, 4), 1e6)).isfinite().all()
