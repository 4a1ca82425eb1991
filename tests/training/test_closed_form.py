from dataclasses import replace

import pytest
import torch

import iaa
import tiny_runs
from iaa.training.closed_form import _start_proxies
from iaa.training.rungs import HEAD_OPTIMIZER, LOSS, STRENGTH, _unless_given


@pytest.mark.parametrize("name", ["norm_softmax", "proxy_nca", "proxy_anchor", "arc_face"])
def test_the_proxy_of_a_class_starts_at_its_mean(name):
    generator = torch.Generator().manual_seed(0)
    z, labels = torch.randn(40, 6, generator=generator), torch.arange(40) % 5
    loss = iaa.losses.build(name, num_classes=5, dim=6).loss
    criterion = iaa.BoostedLoss(loss, iaa.IAA(5, 6))
    (weight,) = loss.parameters()
    lengths = (weight if weight.shape == (5, 6) else weight.T).norm(dim=1)
    _start_proxies(criterion, z, labels, 5)
    proxies = weight if weight.shape == (5, 6) else weight.T
    means = torch.stack([z[labels == label].mean(0) for label in range(5)])
    torch.testing.assert_close(torch.cosine_similarity(proxies, means), torch.ones(5))
    torch.testing.assert_close(proxies.norm(dim=1), lengths)


def test_several_proxies_per_class_stay_as_they_are():
    loss = iaa.losses.build("soft_triple", num_classes=5, dim=6).loss
    before = [weight.clone() for weight in loss.parameters()]
    _start_proxies(iaa.BoostedLoss(loss, iaa.IAA(5, 6)), torch.randn(20, 6), torch.arange(20) % 5, 5)
    assert all(torch.equal(one, other) for one, other in zip(before, loss.parameters(), strict=True))


def test_the_recipe_of_the_ladder_replaces_defaults_alone(tmp_path):
    config = tiny_runs.tiny(tmp_path, tmp_path)
    default = iaa.Config()
    kept = replace(config, loss=default.loss, optimizer=default.optimizer, augment=default.augment)
    recipe = _unless_given(kept, optimizer=HEAD_OPTIMIZER)
    assert (recipe.loss, recipe.augment.strength, recipe.optimizer) == (LOSS, STRENGTH, HEAD_OPTIMIZER)
    given = replace(kept, loss="triplet", augment=replace(kept.augment, strength=0.5))
    recipe = _unless_given(given, optimizer=HEAD_OPTIMIZER)
    assert (recipe.loss, recipe.augment.strength) == ("triplet", 0.5)
    assert _unless_given(replace(kept, loss_options={"base": 0.7})).loss == default.loss
