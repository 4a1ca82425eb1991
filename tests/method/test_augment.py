import copy
import math
from contextlib import nullcontext

import pytest
import torch
from safetensors.torch import load, save

import iaa
import oracles
from iaa.method.augment import IAA

SIZES = [1, 2, 3, 6, 12, 50]


def data(dim: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.tensor([k for k, size in enumerate(SIZES) for _ in range(size)])
    mix = torch.randn(len(SIZES), dim, dim)
    z = torch.einsum("nd,nde->ne", torch.randn(len(labels), dim), mix[labels]) + torch.randn(6, dim)[labels]
    return z, labels


def fitted(**options) -> tuple[IAA, torch.Tensor, torch.Tensor]:
    z, labels = data()
    return IAA(6, 4, **options).fit(z, labels), z, labels


def test_it_is_the_functions_put_together():
    augment, z, labels = fitted(neighbors=2, copies=2)
    variance = iaa.correct(iaa.estimate(z, labels, num_classes=6), neighbors=2)
    assert torch.equal(augment.variance, variance)
    synthetic, synthetic_labels = augment(z, labels, generator=torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(3)
    expected = iaa.synthesize(z, variance[labels], copies=2, generator=generator)
    assert torch.equal(synthetic, expected.flatten(0, 1))
    assert torch.equal(synthetic_labels, labels.repeat(2))


def test_there_is_nothing_to_learn():
    assert list(IAA(3, 2).parameters()) == []


def test_a_second_fit_forgets_the_first():
    augment, z, labels = fitted()
    augment.fit(z + 5, labels)
    fresh = IAA(6, 4).fit(z + 5, labels)
    assert torch.equal(augment.mean, fresh.mean)
    assert torch.equal(augment.variance, fresh.variance)


@pytest.mark.parametrize("batch", [1, 7, 74])
def test_streaming_gives_what_one_fit_gives(batch):
    z, labels = data()
    z = z + 3
    whole, streamed = IAA(6, 4).fit(z, labels), IAA(6, 4)
    order = torch.randperm(len(z))
    for rows in order.split(batch):
        streamed.update(z[rows], labels[rows])
    assert torch.equal(streamed.count, whole.count)
    torch.testing.assert_close(streamed.mean, whole.mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(streamed.own_variance, whole.own_variance, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(streamed.variance, whole.variance, rtol=1e-5, atol=1e-6)


def test_streaming_corrects_a_batch_as_if_it_had_corrected_all():
    z, labels = data()
    augment = IAA(6, 4).update(z, labels)
    some = torch.tensor([0, 20, 3, 3])
    same = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    streamed, _ = augment(z[some], labels[some], generator=same[0])
    expected = iaa.synthesize(z[some], augment.variance[labels[some]], generator=same[1])
    torch.testing.assert_close(streamed, expected.flatten(0, 1))


def test_decay_forgets_the_past_of_the_classes_that_come():
    old, new = torch.zeros(10, 2), torch.ones(10, 2)
    labels = torch.arange(10) % 2
    augment = IAA(2, 2, decay=0.5).update(old, labels)
    only_zero = labels == 0
    augment.update(new[only_zero], labels[only_zero])
    assert augment.count.tolist() == [7.5, 5]
    torch.testing.assert_close(augment.mean[0], torch.full((2,), 5 / 7.5))
    assert augment.mean[1].count_nonzero() == 0


@pytest.mark.parametrize("correction", [True, False])
def test_full_covariance_of_draws_is_the_corrected_full_covariance(correction):
    augment, z, labels = fitted(covariance="full", correction=correction, copies=20_000, strength=0.5)
    count, mean, covariance = oracles.estimate(z, labels, 6)
    expected = oracles.correct(count, mean, covariance) if correction else covariance
    firsts = torch.tensor([labels.tolist().index(k) for k in range(6)])
    draws, _ = augment(z[firsts], labels[firsts])
    draws = draws.unflatten(0, (20_000, 6))
    for k in range(6):
        found = (draws[:, k] - z[firsts[k]]).T.cov(correction=0).double()
        size = expected[k].diagonal().max()
        torch.testing.assert_close(found, 0.5 * expected[k], rtol=0, atol=0.03 * float(size) + 1e-9)
    variance = expected.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(augment.variance.double(), variance, rtol=1e-4, atol=1e-5)


def test_classes_that_borrow_nothing_are_made_of_themselves_alone():
    augment = fitted(covariance="full", few=5)[0]
    members, parts, overall = augment._mixture_of(torch.tensor([2, 5]))
    assert members[:, 0].tolist() == [2, 5]
    assert parts[1].tolist() == [1.0] + [0.0] * (parts.shape[1] - 1)
    assert overall[1] == 0
    assert float(parts[0].sum() + overall[0]) == pytest.approx(1)


def test_streamed_full_covariance_is_the_fitted_one():
    z, labels = data()
    streamed = IAA(6, 4, covariance="full")
    for rows in torch.randperm(len(z)).split(13):
        streamed.update(z[rows], labels[rows])
    whole = IAA(6, 4, covariance="full").fit(z, labels)
    assert sorted(streamed.rows.tolist()) == sorted(whole.rows.tolist())
    torch.testing.assert_close(
        streamed.samples.global_factor(streamed.stats).T @ streamed.samples.global_factor(streamed.stats),
        whole.samples.global_factor(whole.stats).T @ whole.samples.global_factor(whole.stats),
        rtol=1e-4,
        atol=1e-5,
    )


def test_full_covariance_with_decay_drops_what_has_faded():
    augment = IAA(1, 2, covariance="full", decay=0.05)
    for _ in range(4):
        augment.update(torch.randn(5, 2), torch.zeros(5, dtype=torch.long))
    assert len(augment.rows) == 10  # weights 1 and 0.05; 0.0025 is forgotten
    assert float(augment.row_weight.sum()) == pytest.approx(5.25)


def test_state_of_full_covariance_at_the_size_of_sop_stays_small():
    samples, classes, dim = 59_551, 11_318, 512
    augment = IAA(classes, dim, covariance="full")
    rows = torch.zeros(1, dim).expand(samples, dim)  # no memory, same shape
    state = sum(b.numel() * b.element_size() for b in augment.buffers())
    state += samples * (dim * rows.element_size() + 8 + 4) + dim * dim * 4
    assert state < 200e6


def test_global_and_identity_are_degenerations():
    augment, z, labels = fitted(covariance="global")
    torch.testing.assert_close(augment.variance, iaa.global_variance(augment.stats).expand(6, 4))
    augment, z, labels = fitted(covariance="identity", strength=1.0, copies=20_000)
    assert torch.equal(augment.variance, torch.ones(6, 4))
    draws = augment(z[:1], labels[:1])[0]
    torch.testing.assert_close(draws.var(0), torch.ones(4), rtol=0.05, atol=0)


def test_without_correction_the_estimate_stands():
    augment, z, labels = fitted(correction=False)
    assert torch.equal(augment.variance, iaa.estimate(z, labels, num_classes=6).variance)


def test_around_the_mean_no_gradient_flows():
    augment, z, labels = fitted(around="mean", strength=0.0)
    z.requires_grad_()
    synthetic, _ = augment(z, labels)
    torch.testing.assert_close(synthetic, augment.mean[labels].repeat(3, 1))
    assert not (synthetic.requires_grad and torch.autograd.grad(synthetic.sum(), z)[0].any())


def test_a_class_never_seen_can_be_augmented():
    for options in ({"around": "mean"}, {}, {"covariance": "full"}):
        augment = IAA(3, 2, **options).fit(torch.randn(10, 2), torch.arange(10) % 2)
        synthetic, _ = augment(torch.randn(4, 2), torch.full((4,), 2))
        assert synthetic.isfinite().all()
        assert synthetic.std() > 0


def test_unit_space_normalises_first():
    z, labels = data()
    augment = IAA(6, 4, space="unit", strength=0.0).fit(100 * z, labels)
    unit = torch.nn.functional.normalize(z, dim=1)
    torch.testing.assert_close(augment.mean, iaa.estimate(unit, labels, num_classes=6).mean)
    torch.testing.assert_close(augment(z, labels)[0], unit.repeat(3, 1))


def test_strength_may_be_a_schedule_of_training_calls():
    augment, z, labels = fitted(strength=lambda call: 1.0 if call < 2 else 0.0, copies=1)
    changed = [not torch.equal(augment(z, labels)[0], z) for _ in range(4)]
    assert changed == [True, True, False, False]
    augment.eval()
    before = int(augment.calls)
    augment(z, labels)
    assert int(augment.calls) == before


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.parametrize("stream", [False, True])
def test_state_dict_round_trips(covariance, stream):
    z, labels = data()
    augment = IAA(6, 4, covariance=covariance)
    augment = augment.update(z, labels) if stream else augment.fit(z, labels)
    twin = IAA(6, 4, covariance=covariance)
    twin.load_state_dict(load(save(augment.state_dict())))
    assert twin.ready
    same = [torch.Generator().manual_seed(2) for _ in range(2)]
    assert torch.equal(augment(z, labels, generator=same[0])[0], twin(z, labels, generator=same[1])[0])
    unfitted = IAA(6, 4, covariance=covariance)
    twin.load_state_dict(unfitted.state_dict())
    assert not twin.ready


def test_it_can_be_copied_moved_and_cast():
    augment, z, labels = fitted(covariance="full")
    augment(z, labels)
    clone = copy.deepcopy(augment).to("meta")
    assert clone.mean.device.type == "meta"
    assert copy.deepcopy(augment).double().variance.dtype == torch.double


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_in_a_model_of_half_precision_its_statistics_stay_whole(covariance):
    augment, z, labels = fitted(covariance=covariance)
    expected = augment.variance
    torch.nn.Sequential(augment).to(torch.bfloat16)
    assert torch.equal(augment.fit(z, labels).variance, expected)
    assert augment(z.bfloat16(), labels)[0].dtype == torch.bfloat16
    for _ in range(300):
        augment.update(z[:1], labels[:1])
    assert augment.count[labels[0]] > 300


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast(dtype):
    augment, z, labels = fitted()
    synthetic, _ = augment(z.to(dtype), labels)
    assert synthetic.dtype == dtype
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(IAA(6, 4).fit(z, labels).variance, augment.variance)
        assert augment(z, labels)[0].dtype == torch.float32


@pytest.mark.usefixtures("compiler")
def test_compiled_it_draws_the_same():
    augment, z, labels = fitted(strength=0.0)
    compiled = torch.compile(augment, backend="aot_eager")
    torch.testing.assert_close(compiled(z, labels)[0], augment(z, labels)[0])
    noisy, z, labels = fitted()
    torch.manual_seed(1)
    expected = noisy(z, labels)[0]
    torch.manual_seed(1)
    torch.testing.assert_close(torch.compile(noisy, backend="eager")(z, labels)[0], expected)


def test_due_every_few_epochs():
    assert [IAA(2, 2, refresh_every=3).due(epoch) for epoch in range(5)] == [True, False, False, True, False]


def test_before_the_first_fit_it_raises():
    with pytest.raises(RuntimeError, match=r"call fit\(z, labels\)"):
        IAA(2, 2)(torch.zeros(2, 2), torch.tensor([0, 1]))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"covariance": "diag"}, "did you mean 'diagonal'"),
        ({"around": "means"}, "did you mean 'mean'"),
        ({"space": "units"}, "did you mean 'unit'"),
        ({"strength": -1.0}, r"strength must be at least 0, got -1\.0"),
        ({"copies": -1}, "copies must be at least 0, got -1"),
        ({"decay": 1.1}, r"decay must lie in \[0, 1\], got 1\.1"),
        ({"neighbors": -3}, "neighbors must be at least 0"),
        ({"refresh_every": 0}, "refresh_every must be at least 1"),
        ({"num_classes": 0}, "num_classes must be at least 1"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        IAA(**{"num_classes": 3, "dim": 2, **options})


@pytest.mark.usefixtures("unchecked")
def test_bad_batches_are_named():
    augment, z, labels = fitted()
    with pytest.raises(ValueError, match="z must have 4 dimensions, got 3"):
        augment.fit(z[:, :3], labels)
    with pytest.raises(ValueError, match=r"labels must lie in \[0, 6\), got 9 at position 1"):
        augment(z[:2], torch.tensor([0, 9]))
    z[3, 1] = math.nan
    with pytest.raises(ValueError, match=r"1 of 74 rows: 3"):
        augment.update(z, labels)
    with pytest.raises(ValueError, match="strength must be at least 0, got -2"):
        fitted(strength=lambda call: -2.0)[0](z[:2], labels[:2])


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.parametrize("scale", [1e15, 1e19, 1e25])
def test_batches_whose_squares_overflow_are_refused_before_anything_is_kept(covariance, scale):
    labels = torch.arange(48) // 8
    z = torch.randn(48, 5, generator=torch.Generator().manual_seed(0)) + labels[:, None]
    augment = iaa.IAA(num_classes=6, dim=5, covariance=covariance, neighbors=3).update(z, labels)
    with pytest.raises(ValueError, match="z is too large") if scale > 1e15 else nullcontext():
        augment.update(z * scale, labels)
    assert augment(z, labels)[0].isfinite().all()
