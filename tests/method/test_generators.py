import copy

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners

import iaa
import oracles
import oracles_generators
from iaa.boosting import BoostedLoss
from iaa.method import generators
from iaa.method.generators import GENERATORS, Statistics

CLASSES, DIM, SIZE = 4, 5, 12


@pytest.fixture
def batch():
    labels = torch.arange(SIZE) % CLASSES
    return torch.randn(SIZE, DIM) + 2 * torch.eye(CLASSES, DIM)[labels], labels


def statistics(z, labels):
    return Statistics(iaa.estimate(z, labels, num_classes=CLASSES))


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def partners(labels, allowed, copies):
    """Whom chance makes partners, as the generators draw them."""
    return generators._partners(labels, allowed, copies, seeded()).tolist()


def test_gaussian_is_equation_17(batch):
    z, labels = batch
    known = statistics(z, labels)
    drawn, drawn_labels = generators.gaussian(z, labels, known, copies=2, generator=seeded())
    expected = iaa.synthesize(z, known.stats.variance[labels], copies=2, generator=seeded())
    assert torch.equal(drawn, expected.flatten(0, 1))
    assert torch.equal(drawn_labels, labels.repeat(2))


def test_partners_are_others_of_the_class(batch):
    _, labels = batch
    same = labels[:, None] == labels
    for row, other in enumerate(partners(labels, same, 50)):
        assert labels[other] == labels[row % SIZE]
        assert other != row % SIZE
    alone = torch.tensor([0, 1, 1])
    assert partners(alone, alone[:, None] == alone, 2) == [0, 2, 1, 0, 2, 1]


def test_symmetry(batch):
    z, labels = batch
    drawn, drawn_labels = generators.symmetry(z, labels, copies=2, generator=seeded())
    partner = partners(labels, labels[:, None] == labels, 2)
    torch.testing.assert_close(drawn, oracles_generators.symmetry(z, partner))
    torch.testing.assert_close(drawn.norm(dim=1), z.norm(dim=1).repeat(2))
    for row, other in enumerate(partner):  # as similar to the axis as the original
        mirrored = oracles.similarity(drawn[row], z[other])
        torch.testing.assert_close(mirrored, oracles.similarity(z[row % SIZE], z[other]))
    assert torch.equal(drawn_labels, labels.repeat(2))


def test_expansion(batch):
    z, labels = batch
    drawn, drawn_labels = generators.expansion(z, labels, copies=3, generator=seeded())
    partner = partners(labels, labels[:, None] == labels, 1)
    torch.testing.assert_close(drawn, oracles_generators.expansion(z, partner, 3))
    assert torch.equal(drawn_labels, labels.repeat(3))


def test_proxy(batch):
    z, labels = batch
    known = statistics(z, labels)
    drawn, drawn_labels = generators.proxy(z, labels, known, copies=2, generator=seeded())
    generator = seeded()
    partner = generators._partners(labels, labels[:, None] != labels, 2, generator).tolist()
    weight = generators._beta(0.4, 2 * SIZE, z, generator).tolist()
    unit, mean = (rows / rows.norm(dim=1, keepdim=True) for rows in (z, known.stats.mean))
    torch.testing.assert_close(drawn[: 2 * SIZE], oracles_generators.mixed(unit, partner, weight))
    torch.testing.assert_close(drawn[2 * SIZE :], oracles_generators.mixed(mean[labels], partner, weight))
    assert (
        drawn_labels.tolist() == list(range(CLASSES, CLASSES + 2 * SIZE)) * 2
    )  # classes that were not there


def test_mixup(batch):
    z, labels = batch
    drawn, ((share, first), (rest, second)) = generators.mixup(z, labels, copies=2, generator=seeded())
    partner = partners(labels, labels[:, None] != labels, 2)
    torch.testing.assert_close(drawn, oracles_generators.mixed(z, partner, [share] * (2 * SIZE)))
    assert share + rest == 1
    assert torch.equal(first, labels.repeat(2))
    assert torch.equal(second, labels[partner])
    assert (first != second).all()


def test_beta_draws_have_their_mean_and_variance():
    draws = generators._beta(2.0, 20_000, torch.zeros(1), seeded())
    torch.testing.assert_close(draws.mean(), torch.tensor(0.5), atol=0.01, rtol=0)
    torch.testing.assert_close(draws.var(), torch.tensor(1 / 20), atol=0.002, rtol=0)  # 1 / (4 (2 a + 1))


def test_residuals_have_the_corrected_full_covariance(batch):
    z, labels = batch
    z = z.repeat(2, 1) + torch.randn(2 * SIZE, DIM)
    labels = labels.repeat(2)
    full = iaa.IAA(CLASSES, DIM, covariance="full", neighbors=2).fit(z, labels)
    members, parts, overall = full._mixture_of(torch.arange(CLASSES))
    _, _, covariance = oracles.estimate(z, labels, CLASSES)
    anywhere = sum(covariance[c] * (labels == c).sum() for c in range(CLASSES)) / len(z)
    expected = overall[1] * anywhere
    for member, part in zip(members[1].tolist(), parts[1].tolist(), strict=True):
        expected = expected + part * covariance[member]
    known = Statistics(full.stats, full.samples, (members, parts, overall))
    one = torch.tensor([1])
    drawn, _ = generators.residual(z[1:2], one, known, strength=0.5, copies=40_000, generator=seeded())
    gap = (drawn - z[1]).double()
    torch.testing.assert_close(gap.T @ gap / len(gap), 0.5 * expected, atol=0.06, rtol=0)
    real = full.samples.rows - full.mean[full.samples.labels]
    nearest = (drawn[:50, None] - z[1] - 0.5**0.5 * real).norm(dim=2).amin(1)
    assert nearest.max() < 1e-5  # every deviation is that of a real sample


def test_spread(batch):
    z, labels = batch
    known = statistics(z, labels)
    drawn, _ = generators.spread(z, labels, known, strength=0.3, copies=2, generator=seeded())
    noise = torch.empty(2, SIZE, DIM).normal_(generator=seeded()).flatten(0, 1)
    expected = oracles_generators.spread(z, known.stats.mean, known.stats.variance, labels, noise, 0.3)
    torch.testing.assert_close(drawn, expected)
    with pytest.raises(ValueError, match=r"strength must lie in \[0, 1\] for spread, got 2"):
        generators.spread(z, labels, known, strength=2)


def test_spread_keeps_the_variance_of_a_class(batch):
    z, labels = batch
    known = statistics(z, labels)
    drawn, drawn_labels = generators.spread(z, labels, known, strength=0.6, copies=20_000)
    again = iaa.estimate(drawn, drawn_labels, num_classes=CLASSES)
    torch.testing.assert_close(again.mean, known.stats.mean, atol=0.03, rtol=0)
    torch.testing.assert_close(again.variance, known.stats.variance, atol=0.03, rtol=0.05)


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("stream", [False, True], ids=["fit", "update"])
def test_every_generator_in_a_boosted_loss(name, stream, batch):
    z, labels = batch
    augment = iaa.Augmentation(name, CLASSES, DIM, copies=2)
    (augment.update if stream else augment.fit)(z, labels)
    criterion = BoostedLoss(pml.MultiSimilarityLoss(), augment, miners.MultiSimilarityMiner())
    z.requires_grad_()
    value = criterion(z, labels)
    value.backward()
    assert value.isfinite()
    assert z.grad.isfinite().all()
    assert z.grad.any()
    twin = iaa.Augmentation(name, CLASSES, DIM, copies=2)
    twin.load_state_dict(copy.deepcopy(augment.state_dict()))
    torch.manual_seed(1)
    expected = augment(z, labels)[0]
    torch.manual_seed(1)
    assert torch.equal(twin(z, labels)[0], expected)
    assert name in repr(augment)


def test_gaussian_equals_iaa(batch):
    z, labels = batch
    paper, named = iaa.IAA(CLASSES, DIM), iaa.Augmentation("gaussian", CLASSES, DIM)
    values = []
    for augment in (paper.fit(z, labels), named.fit(z, labels)):
        torch.manual_seed(2)
        values.append(augment(z, labels)[0])
    assert torch.equal(*values)


def test_mixed_labels_mix_the_loss(batch):
    z, labels = batch
    criterion = BoostedLoss(pml.ContrastiveLoss(), iaa.Augmentation("mixup", CLASSES, DIM, copies=1))
    torch.manual_seed(2)
    drawn, views = criterion.augment(z, labels)
    expected = 0.0
    for share, view in views:
        candidates, candidate_labels = torch.cat([z, drawn]), torch.cat([labels, view])
        pairs = [
            (i, j, bool(labels[i] == candidate_labels[j]))
            for i in range(SIZE)
            for j in range(2 * SIZE)
            if labels[i] != candidate_labels[j] or i != j % SIZE
        ]
        positive = torch.tensor([(i, j) for i, j, same in pairs if same]).T
        negative = torch.tensor([(i, j) for i, j, same in pairs if not same]).T
        value = pml.ContrastiveLoss()(z, labels, (*positive, *negative), candidates, candidate_labels)
        expected = expected + share * value
    torch.manual_seed(2)
    torch.testing.assert_close(criterion(z, labels), expected)


def test_new_classes_are_refused_by_losses_with_proxies(batch):
    with pytest.raises(ValueError, match="makes new classes, for which ProxyAnchorLoss has no parameters"):
        BoostedLoss(pml.ProxyAnchorLoss(CLASSES, DIM), iaa.Augmentation("proxy", CLASSES, DIM))


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="did you mean 'symmetry'"):
        iaa.Augmentation("symmetric", CLASSES, DIM)
    with pytest.raises(ValueError, match="mix must be above 0"):
        iaa.Augmentation("mixup", CLASSES, DIM, mix=0)
    with pytest.raises(RuntimeError, match="no statistics yet"):
        iaa.Augmentation("spread", CLASSES, DIM)(torch.randn(2, DIM), torch.tensor([0, 1]))
