import copy
import warnings

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners, reducers
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper

import iaa
from iaa.boosting import BoostedLoss

CLASSES, DIM = 5, 6

TAKES_CANDIDATES = [
    pml.AngularLoss(),
    pml.CircleLoss(),
    pml.ContrastiveLoss(),
    pml.DynamicSoftMarginLoss(),
    pml.GeneralizedLiftedStructureLoss(),
    pml.IntraPairVarianceLoss(),
    pml.LiftedStructureLoss(),
    pml.MarginLoss(),
    pml.MultiSimilarityLoss(),
    pml.NCALoss(),
    pml.NTXentLoss(),
    pml.SignalToNoiseRatioContrastiveLoss(),
    pml.SupConLoss(),
    pml.TripletMarginLoss(),
    pml.TripletMarginLoss(triplets_per_anchor=7),
    pml.TupletMarginLoss(),
]
REFUSES_CANDIDATES = [
    pml.ArcFaceLoss(num_classes=CLASSES, embedding_size=DIM),
    pml.CosFaceLoss(num_classes=CLASSES, embedding_size=DIM),
    pml.SubCenterArcFaceLoss(num_classes=CLASSES, embedding_size=DIM),
    pml.SphereFaceLoss(num_classes=CLASSES, embedding_size=DIM),
    pml.LargeMarginSoftmaxLoss(num_classes=CLASSES, embedding_size=DIM),
    pml.NormalizedSoftmaxLoss(CLASSES, DIM),
    pml.ProxyNCALoss(CLASSES, DIM),
    pml.ProxyAnchorLoss(CLASSES, DIM),
    pml.SoftTripleLoss(CLASSES, DIM),
    pml.FastAPLoss(),
    pml.HistogramLoss(n_bins=10),
    pml.InstanceLoss(),
    pml.NPairsLoss(),
    pml.P2SGradLoss(DIM, CLASSES),
    pml.PNPLoss(),
    pml.RankedListLoss(margin=0.4, Tn=1),
    pml.TripletMarginLoss(swap=True),
]


def name(loss) -> str:
    return type(loss).__name__


def batch(size: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.arange(size) % CLASSES
    return torch.randn(size, DIM) + 2 * torch.eye(CLASSES, DIM)[labels], labels


def boosted(loss, miner=None, *, fit=True, copies=3, **options) -> BoostedLoss:
    augment = iaa.IAA(CLASSES, DIM, copies=copies)
    if fit:
        augment.fit(*batch(100))
    return BoostedLoss(copy.deepcopy(loss), augment, miner, **options)


@pytest.mark.parametrize("loss", TAKES_CANDIDATES, ids=name)
def test_losses_that_take_candidates_get_originals_as_anchors(loss):
    criterion = boosted(loss)
    assert criterion.anchors == "originals"
    z, labels = batch()
    z.requires_grad_()
    value = criterion(z, labels)
    value.backward()
    assert value.isfinite()
    assert z.grad.isfinite().all()
    assert z.grad.any()


@pytest.mark.parametrize("loss", REFUSES_CANDIDATES, ids=name)
def test_losses_that_refuse_get_all_embeddings_as_anchors(loss):
    criterion = boosted(loss)
    assert criterion.anchors == "all"
    z, labels = batch()
    z.requires_grad_()
    value = criterion(z, labels)
    value.backward()
    assert value.isfinite()
    assert z.grad.isfinite().all()


def test_smooth_ap_needs_batches_in_its_own_order():
    """SmoothAP wants equally many samples of each class, one class after the other: synthetics break that."""
    labels = torch.arange(20) // 4
    criterion = boosted(pml.SmoothAPLoss(), fit=False)
    assert criterion.anchors == "all"
    assert criterion(torch.randn(20, DIM), labels).isfinite()


@pytest.mark.parametrize("loss", TAKES_CANDIDATES + REFUSES_CANDIDATES, ids=name)
@pytest.mark.parametrize("options", [{"fit": False}, {"copies": 0}], ids=["unfitted", "no copies"])
def test_without_synthetics_it_is_the_plain_loss_to_the_bit(loss, options):
    z, labels = batch()
    criterion = boosted(loss, **options)
    torch.manual_seed(1)
    value = criterion(z, labels)
    torch.manual_seed(1)
    assert torch.equal(value, copy.deepcopy(loss)(z, labels))


def test_without_synthetics_the_miner_mines_as_ever():
    z, labels = batch()
    miner = miners.MultiSimilarityMiner()
    value = boosted(pml.MultiSimilarityLoss(), miner, fit=False)(z, labels)
    assert torch.equal(value, pml.MultiSimilarityLoss()(z, labels, miner(z, labels)))


class TwoSided(pml.BaseMetricLossFunction):
    """A loss of somebody's own, unknown to any list of names."""

    def compute_loss(self, embeddings, labels, indices_tuple, ref_emb, ref_labels):
        a1, p, a2, n = indices_tuple
        matrix = self.distance(embeddings, ref_emb)
        value = matrix[a1, p].mean() - matrix[a2, n].mean()
        return {"loss": {"losses": value, "indices": None, "reduction_type": "already_reduced"}}


class OwnSoftmax(pml.NormalizedSoftmaxLoss):
    pass


def test_losses_of_ones_own_are_asked_too():
    assert boosted(TwoSided()).anchors == "originals"
    assert boosted(OwnSoftmax(CLASSES, DIM)).anchors == "all"
    assert boosted(pml.NormalizedSoftmaxLoss(CLASSES, DIM).double()).anchors == "all"
    assert boosted(TwoSided().double()).takes_pairs


@pytest.mark.parametrize(
    "loss",
    [
        pml.ContrastiveLoss(pos_margin=1.5, neg_margin=0.6),
        pml.ContrastiveLoss(pos_margin=0.0, neg_margin=0.01),
        pml.TripletMarginLoss(margin=0.001),
        pml.MarginLoss(margin=0.01, beta=0.6),
    ],
    ids=name,
)
def test_margins_do_not_hide_that_a_loss_works_on_pairs(loss):
    assert boosted(loss).takes_pairs
    assert boosted(loss).anchors == "originals"


def test_asking_leaves_no_trace():
    loss = pml.ProxyAnchorLoss(CLASSES, DIM)
    state = copy.deepcopy(loss.state_dict())
    random = torch.get_rng_state()
    BoostedLoss(loss, iaa.IAA(CLASSES, DIM))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[key]) for key, value in loss.state_dict().items())


class Watch(pml.BaseMetricLossFunction):
    """Keeps the pairs it is given."""

    def compute_loss(self, embeddings, labels, indices_tuple, ref_emb, ref_labels):
        self.chosen = indices_tuple
        matrix = self.distance(embeddings, ref_emb)
        value = matrix[indices_tuple[0], indices_tuple[1]].sum()
        return {"loss": {"losses": value, "indices": None, "reduction_type": "already_reduced"}}


@pytest.mark.parametrize("own_copies", [False, True])
@pytest.mark.parametrize(
    "miner",
    [
        None,
        miners.MultiSimilarityMiner(epsilon=2.0),
        miners.BatchHardMiner(),
        miners.BatchEasyHardMiner(pos_strategy="all", neg_strategy="hard"),
        miners.BatchEasyHardMiner(pos_strategy="easy", neg_strategy="semihard"),
        miners.BatchEasyHardMiner(pos_strategy="semihard", neg_strategy="hard"),
        miners.TripletMarginMiner(margin=2.0, type_of_triplets="all"),
        miners.PairMarginMiner(pos_margin=0.0, neg_margin=2.0),
        miners.DistanceWeightedMiner(),
        miners.AngularMiner(angle=0),
    ],
    ids=lambda miner: type(miner).__name__,
)
@pytest.mark.parametrize("anchors", ["originals", "all"])
def test_no_self_pairs_and_no_own_copies(miner, own_copies, anchors):
    z, labels = batch()
    criterion = boosted(Watch(), miner, own_copies=own_copies, anchors=anchors)
    criterion(z, labels)
    anchor, positive = criterion.loss.chosen[:2]
    negative_anchor, negative = (
        criterion.loss.chosen[-2 if len(criterion.loss.chosen) == 4 else 0],
        criterion.loss.chosen[-1],
    )
    assert (anchor != positive).all()
    assert (labels[anchor % 20] == labels[positive % 20]).all()
    assert (labels[negative_anchor % 20] != labels[negative % 20]).all()
    own = anchor % 20 == positive % 20
    assert own.any() if own_copies and not hard_positives_only(miner) else not (own.any() and not own_copies)
    assert (positive >= 20).any()  # synthetics are really among those chosen


def hard_positives_only(miner) -> bool:
    return not isinstance(miner, type(None) | miners.PairMarginMiner | miners.DistanceWeightedMiner)


def test_hidden_pairs_do_not_sway_a_miner_of_hard_positives():
    """An own copy far away must not count as the hardest positive."""
    z, labels = batch()
    miner = miners.BatchHardMiner()
    criterion = boosted(Watch(), miner)
    criterion.augment.strength = 50.0  # copies land anywhere
    torch.manual_seed(3)
    criterion(z, labels)
    torch.manual_seed(3)
    everything = torch.cat([z, criterion.augment(z, labels)[0]])
    similarity = miner.distance(z, everything)
    for a, p in zip(*(i.tolist() for i in criterion.loss.chosen[:2]), strict=True):
        others = [j for j in range(80) if labels[j % 20] == labels[a] and j % 20 != a]
        assert p == max(others, key=lambda j: similarity[a, j])


def test_an_anchor_without_any_choice_does_not_unmask_the_rest():
    """A class with one image in the batch has nothing but its own copies to offer."""
    z, labels = batch()
    labels[0], labels[5::5] = 4, 0
    labels[4::5] = 3
    labels[0] = 4
    criterion = boosted(Watch(), miners.BatchHardMiner())
    for _ in range(2):
        criterion(z, labels)
        assert criterion.loss.chosen[0].tolist() == list(range(1, 20))


def test_hidden_pairs_do_not_rob_a_miner_of_easy_positives():
    z, labels = batch()
    miner = miners.BatchEasyHardMiner(pos_strategy="easy", neg_strategy="hard")
    criterion = boosted(Watch(), miner)
    for _ in range(2):  # also once it knows the miner
        criterion(z, labels)
        assert criterion.loss.chosen[0].tolist() == list(range(20))  # every anchor has one
        assert not (criterion.loss.chosen[1] % 20 == torch.arange(20)).any()


def test_a_loss_that_ignores_pairs_does_not_see_hidden_ones_either():
    """NCA compares with every candidate: an anchor's own copies must weigh nothing."""
    z, labels = torch.randn(4, DIM), torch.tensor([0, 0, 1, 1])
    loss = pml.NCALoss()
    criterion = BoostedLoss(loss, iaa.IAA(CLASSES, DIM, copies=1, strength=0.0).fit(z, labels))
    unit = torch.nn.functional.normalize(z, dim=1)
    total = 0.0
    for i in range(4):
        weight = {j: torch.exp(-((unit[i] - unit[j]) ** 2).sum()) for j in range(4) if j != i}
        same = sum(2 * weight[j] for j in weight if labels[j] == labels[i])
        total -= torch.log(same / sum(2 * w for w in weight.values())) / 4
    torch.testing.assert_close(criterion(z, labels), total)
    assert not loss.distance._forward_hooks


def test_it_tells_what_was_chosen():
    z, labels = batch()
    criterion = boosted(pml.ContrastiveLoss())
    criterion(z, labels)
    assert criterion.num_positives == 20 * 3 * 4  # 3 others of the class, each with 3 copies
    assert criterion.num_negatives == 20 * 16 * 4
    assert criterion.synthetic_positives == criterion.synthetic_negatives == 0.75
    plain = boosted(pml.ContrastiveLoss(), miners.MultiSimilarityMiner(), fit=False)
    plain(z, labels)
    assert plain.num_negatives > 0
    assert plain.synthetic_positives == plain.synthetic_negatives == 0
    proxies = boosted(pml.ProxyAnchorLoss(CLASSES, DIM))
    proxies(z, labels)
    assert proxies.num_positives == proxies.synthetic_positives == 0


def test_the_loss_keeps_its_reducer():
    z, labels = batch()
    value = boosted(pml.ContrastiveLoss(reducer=reducers.SumReducer()))(z, labels)
    assert value > boosted(pml.ContrastiveLoss(reducer=reducers.MeanReducer()))(z, labels)


def test_pml_takes_it_for_one_of_its_own():
    criterion = boosted(pml.ContrastiveLoss())
    wrapped = DistributedLossWrapper(criterion)
    z, labels = batch()
    torch.manual_seed(2)
    expected = criterion(z, labels)
    torch.manual_seed(2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "DistributedLossWrapper is being used in a non-distributed")
        assert torch.equal(wrapped(z, labels), expected)


def test_parameters_and_statistics_are_part_of_the_state():
    criterion = boosted(pml.ProxyAnchorLoss(CLASSES, DIM))
    twin = boosted(pml.ProxyAnchorLoss(CLASSES, DIM), fit=False)
    twin.load_state_dict(criterion.state_dict())
    assert twin.augment.ready
    z, labels = batch()
    torch.manual_seed(2)
    expected = criterion(z, labels)
    torch.manual_seed(2)
    assert torch.equal(twin(z, labels), expected)


@pytest.mark.usefixtures("compiler")
def test_compiled_it_gives_the_same():
    criterion = boosted(pml.MultiSimilarityLoss(), miners.MultiSimilarityMiner())
    criterion.augment.strength = 0.0
    z, labels = batch()
    torch.testing.assert_close(torch.compile(criterion, backend="eager")(z, labels), criterion(z, labels))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    z, labels = batch()
    for loss, miner in ((pml.MultiSimilarityLoss(), miners.MultiSimilarityMiner()), (pml.NCALoss(), None)):
        assert boosted(loss, miner)(z.to(dtype), labels).isfinite()


def test_unit_space_gives_the_loss_unit_originals():
    z, labels = batch()
    augment = iaa.IAA(CLASSES, DIM, space="unit", strength=0.0, copies=1).fit(z, labels)
    loss = pml.ContrastiveLoss(distance=pml.ContrastiveLoss().distance.__class__(normalize_embeddings=False))
    value = BoostedLoss(loss, augment)(z, labels)
    torch.testing.assert_close(value, BoostedLoss(pml.ContrastiveLoss(), augment)(z, labels))


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_named():
    criterion = boosted(pml.ContrastiveLoss())
    z, labels = batch()
    with pytest.raises(ValueError, match="z must have 6 dimensions, got 5"):
        criterion(z[:, :5], labels)
    with pytest.raises(ValueError, match="give it the miner, not indices"):
        criterion(z, labels, (labels, labels, labels))
    with pytest.raises(ValueError, match="did you mean 'originals'"):
        boosted(pml.ContrastiveLoss(), anchors="original")
