import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import iaa
import oracles
from iaa.method import within_class
from iaa.method.shrinkage import average_precision, choose_shrink
from iaa.method.whitening import within_covariance
from iaa.method.within_class import WithinClass


def classes_that_vary_alike(
    classes: int = 30, per_class: int = 8, dim: int = 12, *, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """A few directions of large variation that all classes share, and means that differ everywhere."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes * per_class) % classes
    mixing = torch.randn(dim, dim, generator=generator) * torch.tensor([4.0] * 3 + [0.3] * (dim - 3))
    noise = torch.randn(len(labels), dim, generator=generator) @ mixing.T
    return noise + torch.randn(classes, dim, generator=generator)[labels] * 2, labels


def test_covariance_is_equation_14():
    z, labels = classes_that_vary_alike(5, 4, 6)
    z, labels = torch.cat([z, torch.randn(2, 6) * 50]), torch.cat([labels, torch.tensor([17, 18])])
    found = within_covariance(z, labels)
    torch.testing.assert_close(found.double(), oracles.within_covariance(z, labels), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shrink", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("power", [1.0, 0.5, 0.7])
def test_transform_is_the_loops(shrink, power):
    z, labels = classes_that_vary_alike(6, 5, 4)
    z = z.double().abs()
    white = iaa.Whitening(shrink=shrink, power=power).fit(z, labels)
    torch.testing.assert_close(
        white.transform(z), oracles.whiten(z, labels, shrink, power), rtol=1e-8, atol=1e-8
    )


def test_power_leaves_features_with_negative_values_alone():
    z, labels = classes_that_vary_alike()
    white = iaa.Whitening(shrink=0.5).fit(z, labels)
    assert float(white.exponent) == 1
    assert torch.equal(white.transform(z), iaa.Whitening(shrink=0.5, power=1.0).fit(z, labels).transform(z))
    assert float(iaa.Whitening().fit(z.abs(), labels).exponent) == 0.5


def test_whitened_embeddings_vary_alike_in_all_directions():
    z, labels = classes_that_vary_alike(per_class=40)
    white = iaa.Whitening(shrink=0.0).fit(z, labels).transform(z)
    torch.testing.assert_close(within_covariance(white, labels), torch.eye(12), rtol=1e-3, atol=1e-3)


def test_full_shrinkage_only_scales():
    z, labels = classes_that_vary_alike()
    white = iaa.Whitening(shrink=1.0).fit(z, labels).transform(z)
    centred = z - z.mean(0)
    ratio = (white * centred).sum() / centred.square().sum()
    torch.testing.assert_close(white, ratio * centred, rtol=1e-4, atol=1e-4)


def test_it_ranks_unseen_classes_better():
    z, labels = classes_that_vary_alike(60)
    known, unseen = labels < 30, labels >= 30
    white = iaa.Whitening().fit(z[known], labels[known])
    before = iaa.score(z[unseen], labels[unseen])["MAP@R"]
    assert iaa.score(white.transform(z[unseen]), labels[unseen])["MAP@R"] > before + 10


def test_reduction_keeps_the_directions_of_most_variance():
    z, labels = classes_that_vary_alike()
    full, part = (iaa.Whitening(shrink=0.5, dim=dim).fit(z, labels).transform(z) for dim in (None, 5))
    best = torch.linalg.svdvals(full)[:5].square().sum()
    torch.testing.assert_close(part.square().sum(), best, rtol=1e-4, atol=0)
    every = iaa.Whitening(shrink=0.5, dim=12).fit(z, labels).transform(z)
    torch.testing.assert_close(every @ every.T, full @ full.T, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shrink", [0.4, "auto"])
def test_streaming_in_any_order_equals_one_fit(shrink, monkeypatch):
    monkeypatch.setattr(within_class, "KEPT", 100)  # so that samples are dropped on the way
    z, labels = classes_that_vary_alike()
    z, labels = z.double(), labels * 7 - 100
    whole = iaa.Whitening(shrink=shrink, dim=6).fit(z, labels)
    stream = iaa.Whitening(shrink=shrink, dim=6)
    for rows in torch.randperm(len(z)).split(17):
        stream.update(z[rows], labels[rows])
    assert stream.solve().chosen_shrink == whole.chosen_shrink
    torch.testing.assert_close(stream.center, whole.center)
    gram = whole.transform(z) @ whole.transform(z).T
    torch.testing.assert_close(stream.transform(z) @ stream.transform(z).T, gram, rtol=1e-8, atol=1e-8)


def test_the_samples_kept_are_those_of_whole_classes(monkeypatch):
    monkeypatch.setattr(within_class, "KEPT", 100)
    z, labels = classes_that_vary_alike()
    stats = WithinClass.of(z, labels)
    assert len(stats.rows) == 96  # twelve classes of eight
    assert sorted(stats.row_labels.unique().tolist()) == sorted(stats.kept_classes().tolist())
    rest = stats.without(stats.kept_classes()[:3])
    expected = WithinClass.of(*(t[~torch.isin(labels, stats.kept_classes()[:3])] for t in (z, labels)))
    torch.testing.assert_close(rest.scatter, expected.scatter)
    torch.testing.assert_close(rest.center, expected.center)


def test_a_second_fit_forgets_the_first():
    z, labels = classes_that_vary_alike()
    white = iaa.Whitening().fit(torch.randn(50, 7).abs(), torch.arange(50) % 5).fit(z, labels)
    assert torch.equal(white.transform(z), iaa.Whitening().fit(z, labels).transform(z))


def test_shrinkage_follows_the_data():
    z, labels = classes_that_vary_alike(60, 20)
    assert choose_shrink(WithinClass.of(z, labels)) <= 0.3  # all classes share one covariance
    noise = torch.randn(600, 12)
    noise[:, 0] += torch.arange(600) % 60 * 0.5
    assert choose_shrink(WithinClass.of(noise, torch.arange(600) % 60)) >= 0.5
    few = labels < 4
    assert iaa.Whitening().fit(z[few], labels[few]).chosen_shrink == 0.8


def test_precision_in_the_choice_is_that_of_score():
    z, labels = classes_that_vary_alike()
    labels[labels == 3] = 4
    expected = iaa.score(z, labels)["MAP@R"] / 100
    assert float(average_precision(z, labels, block=50).mean()) == pytest.approx(expected, abs=1e-5)


def test_one_sample_classes_move_the_center_alone():
    z, labels = classes_that_vary_alike()
    more, more_labels = torch.cat([z, torch.randn(9, 12)]), torch.cat([labels, 100 + torch.arange(9)])
    one, other = (iaa.Whitening(shrink=0.5).fit(*s) for s in ((z, labels), (more, more_labels)))
    torch.testing.assert_close(one.weight, other.weight)
    torch.testing.assert_close(other.center, more.mean(0))


def test_more_features_than_samples():
    z, labels = torch.randn(12, 64), torch.arange(12) % 4
    for shrink in (0.0, "auto"):
        assert iaa.Whitening(shrink=shrink).fit(z, labels).transform(z).isfinite().all()


def test_it_is_saved_and_loaded_like_a_layer():
    z, labels = classes_that_vary_alike()
    white = iaa.Whitening(dim=5).update(z.abs(), labels)
    again = iaa.Whitening(dim=5)
    again.load_state_dict(white.state_dict())
    assert torch.equal(again(z.abs()), white(z.abs()))
    assert not list(white.parameters())
    with pytest.raises(RuntimeError, match="no statistics yet"):
        again.solve()


def test_gradients_pass_and_are_finite_at_zero():
    z, labels = classes_that_vary_alike()
    white = iaa.Whitening().fit(z.relu(), labels)
    given = z.relu().requires_grad_()
    white(given).square().sum().backward()
    assert given.grad.isfinite().all()


def test_it_is_an_estimator_for_scikit_learn():
    z, labels = classes_that_vary_alike()
    white = iaa.Whitening(shrink=0.3, dim=6)
    assert clone(white).get_params() == {"shrink": 0.3, "power": 0.5, "dim": 6}
    names = [f"class {label}" for label in labels.tolist()]
    pipeline = make_pipeline(white, KNeighborsClassifier(3)).set_params(whitening__dim=8)
    assert pipeline.fit(z.numpy(), names).score(z.numpy(), names) > 0.5
    transformed = pipeline[0].transform(z.numpy())
    assert transformed.shape == (240, 8)
    assert type(transformed).__name__ == "ndarray"
    last = make_pipeline(StandardScaler(), white).fit(z.numpy(), names)
    assert last.transform(z.numpy()).shape == (240, 8)
    with pytest.raises(NotFittedError):
        make_pipeline(StandardScaler(), clone(white)).transform(z.numpy())
    with pytest.raises(ValueError, match="shrink, power and dim, got 'margin'"):
        white.set_params(margin=1)


@pytest.mark.parametrize(
    ("z", "labels", "options", "message"),
    [
        (torch.randn(5, 3), torch.arange(5), {}, "a class of at least two samples, got 5 classes of one"),
        (torch.ones(6, 3), torch.arange(6) % 2, {}, "z must vary within classes"),
        (
            torch.tensor([[float("nan")]]).repeat(4, 3),
            torch.zeros(4, dtype=torch.long),
            {},
            "z must be finite",
        ),
        (torch.randn(6), torch.arange(6), {}, r"z must have shape \(samples, dimensions\), got \(6,\)"),
        (torch.randn(6, 3), torch.arange(5), {}, "equally long, got 6 embeddings and 5 labels"),
        (torch.randn(6, 3), torch.arange(6) % 2, {"dim": 4}, "dim must be at most the 3 features there are"),
    ],
)
def test_bad_input_is_named(z, labels, options, message):
    with pytest.raises(ValueError, match=message):
        iaa.Whitening(**options).fit(z, labels)


def test_bad_options_are_named():
    for options, message in (
        ({"shrink": 1.5}, r"shrink must lie in \[0, 1\], got 1.5"),
        ({"power": 0.0}, "power must be above 0"),
        ({"dim": 0}, "dim must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            iaa.Whitening(**options)
    white = iaa.Whitening()
    with pytest.raises(ValueError, match="shrink must be a number from 0 to 1 or 'auto', got 'best'"):
        white.set_params(shrink="best")
    white.set_params(shrink="auto")
    with pytest.raises(RuntimeError, match="no statistics yet"):
        white.transform(torch.randn(2, 3))
    white.fit(*classes_that_vary_alike())
    with pytest.raises(ValueError, match=r"z must have shape \(samples, 12\), got \(2, 3\)"):
        white.transform(torch.randn(2, 3))


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e10, 1e25, 1e37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_scale_of_embeddings_changes_nothing(scale, dtype):
    labels = torch.arange(48) // 8
    z = torch.randn(48, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + labels[:, None]
    expected, scaled = iaa.Whitening().fit(z, labels), (z * scale).to(dtype)
    whitening = iaa.Whitening().fit(scaled, labels)
    assert whitening.chosen_shrink == expected.chosen_shrink
    assert torch.allclose(whitening.transform(scaled).double(), expected.transform(z), atol=1e-3)


def test_squares_beyond_float64_and_ragged_rows_are_refused_in_words():
    labels = torch.arange(8) // 2
    with pytest.raises(ValueError, match="z is too large"):
        iaa.Whitening().fit(torch.randn(8, 3).double() * 1e200, labels)
    with pytest.raises(ValueError, match="rows of one length"):
        iaa.Whitening().fit([[1.0, 2.0], [3.0]], [0, 0])


def test_batches_with_labels_as_text_are_refused():
    z = torch.randn(8, 3)
    assert iaa.Whitening().fit(z, list("aabbccdd")).weight.shape == (3, 3)
    with pytest.raises((TypeError, ValueError), match="labels"):
        iaa.Whitening().update(z, list("aabbccdd"))
