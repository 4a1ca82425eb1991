import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import iaa


def samples():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 6
    return 3 * torch.randn(6, 4, generator=generator)[labels] + torch.randn(
        60, 4, generator=generator
    ), labels


def test_it_is_the_twin_of_estimate_and_correct():
    z, labels = samples()
    gaussians = iaa.ClassGaussians(neighbors=2, few=100).fit(z, labels)
    stats = iaa.estimate(z, labels, num_classes=6)
    torch.testing.assert_close(gaussians.stats_.mean, stats.mean)
    torch.testing.assert_close(gaussians.variance_, iaa.correct(stats, neighbors=2, few=100))


def test_distances_are_those_of_mahalanobis():
    z, labels = samples()
    gaussians = iaa.ClassGaussians(neighbors=2).fit(z, labels)
    distance = gaussians.transform(z)
    for row, k in ((0, 0), (7, 3), (59, 5)):
        shift = z[row] - gaussians.stats_.mean[k]
        expected = (shift @ torch.diag(1 / gaussians.variance_[k]) @ shift).sqrt()
        torch.testing.assert_close(distance[row, k], expected)


def test_dimensions_that_never_vary_and_classes_of_one_keep_distances_finite():
    z, labels = samples()
    z[:, 1] = 2.0
    labels[:1] = 6  # a class of its own
    assert iaa.ClassGaussians(few=0).fit(z, labels).transform(z).isfinite().all()


def test_it_is_an_estimator_for_scikit_learn():
    z, labels = samples()
    names = np.array([f"class {label}" for label in labels.tolist()])
    gaussians = iaa.ClassGaussians(neighbors=3)
    assert clone(gaussians).get_params() == gaussians.get_params()
    pipeline = make_pipeline(iaa.Whitening(), gaussians, KNeighborsClassifier(3))
    pipeline.set_params(classgaussians__neighbors=2)
    assert pipeline.fit(z.numpy(), names).score(z.numpy(), names) > 0.8
    assert isinstance(pipeline[:2].transform(z.numpy()), np.ndarray)
    assert (
        make_pipeline(iaa.Whitening(), gaussians).fit(z.numpy(), names).predict(z.numpy()) == names
    ).mean() > 0.8


def test_mistakes_are_named():
    z, labels = samples()
    with pytest.raises(RuntimeError, match="knows no classes yet: call fit"):
        iaa.ClassGaussians().transform(z)
    with pytest.raises(ValueError, match=r"z must have shape \(samples, 4\), got \(60, 3\)"):
        iaa.ClassGaussians().fit(z, labels).transform(z[:, :3])
    with pytest.raises(ValueError, match=r"got 'neighbours' .did you mean 'neighbors'"):
        iaa.ClassGaussians().set_params(neighbours=3)
