"""Every baseline against its equation as loops: plain and boosted, values and gradients."""

import inspect

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners
from pytorch_metric_learning.distances import CosineSimilarity, LpDistance

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


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("proxy_anchor", pml.ProxyAnchorLoss),
        ("ProxyAnchorLoss", pml.ProxyAnchorLoss),
        ("fast_ap", pml.FastAPLoss),
        ("ntxent", pml.NTXentLoss),
        ("arc_face", pml.ArcFaceLoss),
        ("sub_center_arc_face", pml.SubCenterArcFaceLoss),
        ("p2s_grad", pml.P2SGradLoss),
        ("snr", pml.SignalToNoiseRatioContrastiveLoss),
        ("smooth_ap", pml.SmoothAPLoss),
    ],
)
def test_losses_of_pml_by_name(name, kind):
    loss, miner = losses.build(name, num_classes=CLASSES, dim=DIM)
    assert type(loss) is kind
    assert miner is None


def test_every_loss_of_pml_has_a_name():
    kinds = {kind.__name__ for kind in vars(pml).values() if inspect.isclass(kind)}
    for kind in sorted(kinds):
        if not kind.endswith("Loss") or kind in (
            "ManifoldLoss",
            "VICRegLoss",
            "SelfSupervisedLoss",
            "GenericPairLoss",
        ):
            continue
        options = {"margin": 0.4, "Tn": 1} if kind == "RankedListLoss" else {}
        snake = losses._snake(getattr(pml, kind))
        for name in (kind, snake):
            if name not in {**losses.PAIRS, **losses.PROXIES}:
                assert type(losses.build(name, num_classes=3, dim=4, **options).loss).__name__ == kind


def test_options_reach_the_loss():
    assert losses.build("proxy_anchor", num_classes=CLASSES, dim=DIM, margin=0.3).loss.margin == 0.3
    assert losses.build("pnp", num_classes=CLASSES, dim=DIM, variant="Ds").loss.variant == "Ds"
    assert losses.build("triplet_margin", num_classes=CLASSES, dim=DIM, swap=True).loss.swap is True


def test_names_and_options_that_are_wrong():
    with pytest.raises(ValueError, match="did you mean 'proxy_anchor'"):
        losses.build("proxy_ancor", num_classes=CLASSES, dim=DIM)
    with pytest.raises(ValueError, match="did you mean 'batch_hard'"):
        losses.build_miner("batch_hart")
    with pytest.raises(ValueError, match="loss ranked_list needs the options Tn, margin"):
        losses.build("ranked_list", num_classes=CLASSES, dim=DIM)
    with pytest.raises(ValueError, match="option margin must be a number, got 'wide'"):
        losses.build("triplet", num_classes=CLASSES, dim=DIM, margin="wide")
    with pytest.raises(ValueError, match="memory does not work with ProxyAnchorLoss"):
        losses.with_memory(losses.build("proxy_anchor", num_classes=CLASSES, dim=DIM), dim=DIM, size=64)


def test_miners_by_name():
    assert losses.build_miner("none") is None
    assert losses.build_miner("MultiSimilarityMiner", epsilon=0.3).epsilon == 0.3
    assert isinstance(losses.build_miner("hdc"), miners.HDCMiner)


def test_a_memory_takes_the_miner_inside():
    loss, miner = losses.with_memory(losses.triplet(), dim=DIM, size=64)
    assert miner is None
    assert isinstance(loss, pml.CrossBatchMemory)
    assert loss.miner.neg_strategy == "hard"


@pytest.mark.parametrize("distance", [CosineSimilarity(), LpDistance()], ids=["similarity", "distance"])
@pytest.mark.parametrize("candidates", [False, True])
def test_hard_pairs_are_those_of_pml(distance, candidates):
    z, labels = batch()
    other, other_labels = torch.randn(14, DIM, dtype=torch.double), torch.arange(14) % CLASSES
    reference = (other, other_labels) if candidates else ()
    options = {"epsilon": 0.1, "distance": distance}
    ours, theirs = (
        kind(**options)(z, labels, *reference) for kind in (losses.HardPairs, miners.MultiSimilarityMiner)
    )
    for side in (slice(0, 2), slice(2, 4)):
        pairs = [
            set(zip(*(index.tolist() for index in result[side]), strict=True)) for result in (ours, theirs)
        ]
        assert pairs[0] == pairs[1] != set()
