"""Every baseline against its equation as loops: plain and boosted, values and gradients."""

import pytest
import torch

import iaa
import oracles
from iaa import losses
from iaa.boosting import BoostedLoss

CLASSES, DIM, COPIES = 4, 5, 2


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 0, 3])  # class 3 comes alone
    return torch.randn(len(labels), DIM, dtype=torch.double) + torch.eye(CLASSES, DIM)[labels], labels


class Fixed(iaa.IAA):
    """An augmentation whose noise is known: always the same for the same batch."""

    def forward(self, z, labels, *, generator=None):
        return super().forward(z, labels, generator=torch.Generator().manual_seed(9))


def fixed_augment(z, labels) -> Fixed:
    return Fixed(CLASSES, DIM, copies=COPIES).double().fit(z.detach(), labels)


def compare(loss, oracle, z) -> None:
    value, expected = loss(z), oracle(z)
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-8)
    assert value > 0
    gradients = (torch.autograd.grad(v, z)[0] for v in (value, expected))
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("own_copies", [False, True])
@pytest.mark.parametrize("name", ["contrastive", "triplet", "multi_similarity", "circle"])
def test_losses_over_pairs(name, own_copies):
    z, labels = batch()
    z.requires_grad_()
    loss, miner = losses.build(name, num_classes=CLASSES, dim=DIM)
    oracle = getattr(oracles, name)
    compare(lambda z: loss(z, labels, miner(z, labels) if miner else None), lambda z: oracle(z, labels), z)
    augment = fixed_augment(z, labels)
    boosted = BoostedLoss(loss, augment, miner, own_copies=own_copies)
    assert boosted.anchors == "originals"
    compare(
        lambda z: boosted(z, labels),
        lambda z: oracle(z, labels, augment(z, labels)[0], own_copies=own_copies),
        z,
    )


@pytest.mark.parametrize("name", ["triplet_distance", "margin"])
def test_losses_over_sampled_triplets(name):
    z, labels = batch()
    z.requires_grad_()
    loss, miner = losses.build(name, num_classes=CLASSES, dim=DIM)
    augment = fixed_augment(z, labels)
    boosted = BoostedLoss(loss, augment, miner)
    everything = lambda z: torch.cat([z, augment(z, labels)[0]])  # noqa: E731
    boosted(z, labels)  # learns that this miner looks at labels alone
    torch.manual_seed(4)
    chosen = list(zip(*(i.tolist() for i in miner(z, labels, everything(z), labels.repeat(3))), strict=True))
    allowed = [(a, p, n) for a, p, n in chosen if p % len(z) != a]
    assert 0 < len(allowed) < len(chosen)

    def seeded(z):
        torch.manual_seed(4)
        return boosted(z, labels)

    def oracle(z, chosen=allowed, candidates=everything):
        if name == "triplet_distance":
            return oracles.triplets(z, candidates(z), chosen, 0.2)
        return oracles.margin(z, candidates(z), chosen, 0.2, 1.2)

    compare(seeded, oracle, z)
    mined = miner(z, labels)
    plain = list(zip(*(i.tolist() for i in mined), strict=True))
    compare(lambda z: loss(z, labels, mined), lambda z: oracle(z, plain, lambda z: z), z)


@pytest.mark.parametrize("name", ["norm_softmax", "proxy_nca", "soft_triple"])
def test_losses_over_proxies(name):
    z, labels = batch()
    z.requires_grad_()
    loss, miner = losses.build(name, num_classes=CLASSES, dim=DIM)
    loss.double()
    assert miner is None

    def oracle(z, labels):
        if name == "norm_softmax":
            return oracles.norm_softmax(z, labels, loss.W.T, 0.05)
        if name == "proxy_nca":
            return oracles.proxy_nca(z, labels, loss.proxies, 8.0)
        centers = loss.fc.T.reshape(CLASSES, 10, DIM)
        return oracles.soft_triple(z, labels, centers, scale=20.0, gamma=0.1, margin=0.01)

    compare(lambda z: loss(z, labels), lambda z: oracle(z, labels), z)
    augment = fixed_augment(z, labels)
    boosted = BoostedLoss(loss, augment)
    assert boosted.anchors == "all"
    together = lambda z: torch.cat([z, augment(z, labels)[0]])  # noqa: E731
    compare(lambda z: boosted(z, labels), lambda z: oracle(together(z), labels.repeat(3)), z)


def test_centers_are_whole_however_a_command_line_writes_them():
    loss, _ = losses.build("soft_triple", num_classes=CLASSES, dim=DIM, centers=5.0)
    assert loss.fc.shape == (DIM, 5 * CLASSES)
    with pytest.raises(ValueError, match=r"centers must be a whole number, got 2\.5"):
        losses.build("soft_triple", num_classes=CLASSES, dim=DIM, centers=2.5)


def test_an_unknown_loss_is_named():
    with pytest.raises(ValueError, match="did you mean 'triplet'"):
        losses.build("tripplet", num_classes=2, dim=2)
