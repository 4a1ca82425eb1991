import copy
import warnings

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners, reducers
from pytorch_metric_learning.distances import (
    CosineSimilarity,
    DotProductSimilarity,
    LpDistance,
    SNRDistance,
)
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper

import iaa
from iaa import losses
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


def together(criterion, z, labels, seed=3):
    """The candidates that a boosted loss sees with this seed: originals, then their synthetics."""
    torch.manual_seed(seed)
    synthetic, synthetic_labels = criterion.augment(z, labels)
    return torch.cat([z, synthetic]), torch.cat([labels, synthetic_labels])


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


def test_smooth_ap_gets_its_batch_class_after_class():
    z, labels = batch()
    criterion = boosted(pml.SmoothAPLoss(temperature=0.5))
    everything, all_labels = together(criterion, z, labels)
    order = all_labels.argsort(stable=True)
    in_order = pml.SmoothAPLoss(temperature=0.5)(everything[order], all_labels[order])
    assert not torch.isclose(in_order, pml.SmoothAPLoss(temperature=0.5)(everything, all_labels))
    torch.manual_seed(3)
    torch.testing.assert_close(criterion(z, labels), in_order)


@pytest.mark.parametrize("loss", TAKES_CANDIDATES + REFUSES_CANDIDATES, ids=name)
@pytest.mark.filterwarnings("ignore:BoostedLoss trains without synthetics")
@pytest.mark.parametrize("how", ["unfitted", "no copies", "eval"])
def test_without_synthetics_it_is_the_plain_loss_to_the_bit(loss, how):
    z, labels = batch()
    criterion = boosted(loss, fit=how != "unfitted", copies=0 if how == "no copies" else 3)
    criterion.train(how != "eval")
    torch.manual_seed(1)
    value = criterion(z, labels)
    torch.manual_seed(1)
    assert torch.equal(value, copy.deepcopy(loss)(z, labels))


def test_without_synthetics_the_miner_mines_as_ever():
    z, labels = batch()
    miner = miners.MultiSimilarityMiner()
    value = boosted(pml.MultiSimilarityLoss(), miner, copies=0)(z, labels)
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
        pml.ContrastiveLoss(distance=CosineSimilarity()),
        pml.ContrastiveLoss(pos_margin=-0.9, neg_margin=0.999, distance=CosineSimilarity()),
        pml.ContrastiveLoss(pos_margin=1.99, neg_margin=0.001),
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


def test_it_reports_what_was_chosen():
    z, labels = batch()
    criterion = boosted(pml.ContrastiveLoss())
    criterion(z, labels)
    assert criterion.num_positives == 20 * 3 * 4  # 3 others of the class, each with 3 copies
    assert criterion.num_negatives == 20 * 16 * 4
    assert criterion.synthetic_positives == criterion.synthetic_negatives == 0.75
    plain = boosted(pml.ContrastiveLoss(), miners.MultiSimilarityMiner(), copies=0)
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
    with pytest.raises(ValueError, match="indices_tuple must hold 3 or 4 tensors, got 2"):
        criterion(z, labels, (labels, labels))
    with pytest.raises(TypeError, match=r"labels must hold numbers, got .* such as cat; encode them"):
        criterion(z, ["cat"] * 20)
    with pytest.raises(ValueError, match=r"labels must lie in \[0, 5\), got 5 at position 0: encode them"):
        criterion(z, labels + 5)
    with pytest.raises(ValueError, match="with synthetics BoostedLoss needs labels"):
        criterion(z)
    with pytest.raises(ValueError, match="either a miner to BoostedLoss or indices_tuple"):
        boosted(pml.ContrastiveLoss(), miners.BatchHardMiner())(z, labels, (labels, labels, labels))
    with pytest.raises(ValueError, match="did you mean 'originals'"):
        boosted(pml.ContrastiveLoss(), anchors="original")
    with pytest.raises(ValueError, match="nest the other way round"):
        boosted(DistributedLossWrapper(pml.ContrastiveLoss()))
    with pytest.raises(TypeError, match="SelfSupervisedLoss takes no labels"):
        boosted(pml.SelfSupervisedLoss(pml.ContrastiveLoss()))
    with pytest.raises(ValueError, match="Plain takes no indices, so a miner would have no effect"):
        boosted(Plain(), miners.BatchHardMiner())
    with pytest.raises(ValueError, match="with a memory, indices_tuple cannot be used"):
        boosted(pml.CrossBatchMemory(pml.ContrastiveLoss(), DIM, 64))(z, labels, (labels, labels, labels))
    with pytest.raises(ValueError, match="the miner belongs to CrossBatchMemory"):
        boosted(pml.CrossBatchMemory(pml.ContrastiveLoss(), DIM, 64), miners.BatchHardMiner())


class Plain(torch.nn.Module):
    """A loss of somebody's own that knows neither pairs nor candidates."""

    def forward(self, z, labels):
        return (z[:, None] - z).square().sum(2)[labels[:, None] == labels].mean()


class OnPairs(torch.nn.Module):
    def forward(self, z, labels, indices_tuple=None):
        a, p, _, _ = lmu.convert_to_pairs(indices_tuple, labels)
        return (z[a] - z[p]).square().sum(1).mean()


def test_a_loss_of_embeddings_and_labels_alone():
    z, labels = batch()
    criterion = boosted(Plain())
    everything, all_labels = together(criterion, z, labels)
    torch.manual_seed(3)
    assert torch.equal(criterion(z, labels), Plain()(everything, all_labels))
    assert torch.equal(boosted(Plain(), copies=0)(z, labels), Plain()(z, labels))


def test_a_loss_that_takes_pairs_but_no_candidates():
    z, labels = batch()
    criterion = boosted(OnPairs())
    assert criterion.takes_pairs
    assert criterion.anchors == "all"
    everything, all_labels = together(criterion, z, labels)
    expected = torch.stack(
        [
            (everything[i] - everything[j]).square().sum()
            for i in range(80)
            for j in range(80)
            if all_labels[i] == all_labels[j] and i % 20 != j % 20
        ]
    ).mean()
    torch.manual_seed(3)
    torch.testing.assert_close(criterion(z, labels), expected)


def test_each_of_several_losses_is_boosted_by_itself():
    """With the same synthetics: pairs for one, proxies for the other, each with its miner and weight."""
    z, labels = batch()
    proxies = pml.ProxyAnchorLoss(CLASSES, DIM)
    several = pml.MultipleLosses(
        [pml.ContrastiveLoss(), proxies], miners=[miners.BatchHardMiner(), None], weights=[1.0, 0.5]
    )
    criterion = boosted(several)
    assert criterion.anchors == "auto"
    torch.manual_seed(3)
    value = criterion(z, labels)
    parts = []
    for loss, miner in ((pml.ContrastiveLoss(), miners.BatchHardMiner()), (proxies, None)):
        torch.manual_seed(3)
        parts.append(BoostedLoss(loss, criterion.augment, miner)(z, labels))
    torch.testing.assert_close(value, parts[0] + 0.5 * parts[1])


def test_a_memory_holds_originals_and_synthetics_are_of_the_batch():
    memory = pml.CrossBatchMemory(pml.ContrastiveLoss(reducer=reducers.SumReducer()), DIM, 48)
    criterion = boosted(memory)
    past, past_labels = torch.zeros(0, DIM), torch.zeros(0, dtype=torch.long)
    for step in range(4):  # the third batch wraps around the end of the memory
        z, labels = batch()
        everything, all_labels = together(criterion, z, labels, seed=step)
        past, past_labels = torch.cat([past, z])[-48:], torch.cat([past_labels, labels])[-48:]
        candidates = torch.cat([past, everything[20:]])
        candidate_labels = torch.cat([past_labels, all_labels[20:]])
        here = len(past) - 20
        unit, other = (torch.nn.functional.normalize(rows, dim=1) for rows in (z, candidates))
        expected = 0.0
        for i in range(20):
            for j in range(len(candidates)):
                itself = j == here + i or (j >= len(past) and (j - len(past)) % 20 == i)
                distance = (unit[i] - other[j]).norm()
                if labels[i] == candidate_labels[j] and not itself:
                    expected += distance
                elif labels[i] != candidate_labels[j]:
                    expected += (1 - distance).clamp(min=0)
        torch.manual_seed(step)
        torch.testing.assert_close(criterion(z, labels), expected, rtol=1e-4, atol=1e-3)
        if len(past) == 48:
            assert {tuple(row.tolist()) for row in criterion.loss.embedding_memory} == {
                tuple(row.tolist()) for row in past
            }


def test_where_a_memory_stands_is_part_of_the_state():
    def fresh():
        return boosted(pml.CrossBatchMemory(pml.ContrastiveLoss(), DIM, 48))

    criterion, twin = fresh(), fresh()
    for _ in range(3):
        criterion(*batch())
    twin.load_state_dict(criterion.state_dict())
    z, labels = batch()
    values = []
    for one in (criterion, twin):
        torch.manual_seed(5)
        values.append(one(z, labels))
    assert torch.equal(*values)


def test_pairs_that_a_caller_chose_hold_for_their_synthetics():
    z, labels = batch()
    criterion = boosted(Watch())
    triplets = torch.tensor([0, 1]), torch.tensor([5, 6]), torch.tensor([2, 3])
    criterion(z, labels, triplets)
    assert [index.tolist() for index in criterion.loss.chosen] == [
        [0, 1] * 4,
        [5, 6, 25, 26, 45, 46, 65, 66],
        [2, 3, 22, 23, 42, 43, 62, 63],
    ]
    proxies = boosted(pml.ProxyAnchorLoss(CLASSES, DIM))
    weights = torch.tensor([0, 1]), torch.tensor([5, 6]), torch.tensor([0, 1]), torch.tensor([2, 3])
    assert proxies(z, labels, weights).isfinite()


def test_candidates_that_a_caller_brings_stand_next_to_the_synthetics():
    z, labels = batch()
    other, other_labels = batch(15)
    criterion = boosted(Watch())
    criterion(z, labels, ref_emb=other, ref_labels=other_labels)
    a, p = criterion.loss.chosen[:2]
    positives = set(zip(a.tolist(), p.tolist(), strict=True))
    all_labels = torch.cat([other_labels, labels.repeat(3)])
    assert positives == {
        (i, j)
        for i in range(20)
        for j in range(75)
        if labels[i] == all_labels[j] and not (j >= 15 and (j - 15) % 20 == i)
    }
    given = tuple(map(torch.tensor, ([0], [0], [0], [1])))
    criterion(z, labels, given, other, other_labels)
    _, p, _, n = criterion.loss.chosen
    assert (p < 15).sum() == (n < 15).sum() == 1
    with pytest.raises(ValueError, match="takes no candidates from outside its batch"):
        boosted(pml.FastAPLoss())(z, labels, ref_emb=other, ref_labels=other_labels)


def test_without_copies_everything_reaches_the_loss():
    z, labels = batch()
    other, other_labels = batch(15)
    plain, pairs = (
        pml.ContrastiveLoss(),
        (torch.tensor([0]), torch.tensor([5]), torch.tensor([0]), torch.tensor([1])),
    )
    criterion = boosted(plain, copies=0)
    assert torch.equal(criterion(z, labels, pairs), plain(z, labels, pairs))
    expected = plain(z, labels, None, other, other_labels)
    assert torch.equal(criterion(z, labels, ref_emb=other, ref_labels=other_labels), expected)
    mined = boosted(plain, miners.BatchHardMiner(), copies=0)
    triplets = miners.BatchHardMiner()(z, labels, other, other_labels)
    assert torch.equal(
        mined(z, labels, None, other, other_labels), plain(z, labels, triplets, other, other_labels)
    )
    vicreg = boosted(pml.VICRegLoss(), copies=0)
    assert torch.equal(vicreg(z, ref_emb=z + 1), pml.VICRegLoss()(z, ref_emb=z + 1))


def test_attributes_are_those_of_the_wrapped_loss():
    cosine = boosted(pml.ContrastiveLoss(distance=CosineSimilarity(), reducer=reducers.SumReducer()))
    assert cosine.distance is cosine.loss.distance
    assert cosine.reducer is cosine.loss.reducer
    assert cosine.collect_stats == cosine.loss.collect_stats
    assert cosine.sub_loss_names() == ["pos_loss", "neg_loss"]
    assert cosine.embedding_regularizer is None
    z, _ = batch()
    proxies = boosted(pml.ProxyAnchorLoss(CLASSES, DIM))
    assert proxies.proxies is proxies.loss.proxies
    softmax = boosted(pml.NormalizedSoftmaxLoss(CLASSES, DIM))
    assert softmax.W is softmax.loss.W
    assert torch.equal(softmax.get_logits(z), softmax.loss.get_logits(z))
    softmax.temperature = 0.5
    assert softmax.loss.temperature == 0.5
    assert boosted(pml.MarginLoss(beta=0.7)).beta == 0.7
    memory = boosted(pml.CrossBatchMemory(pml.ContrastiveLoss(), DIM, 48, miner=miners.BatchHardMiner()))
    assert memory.miner is None
    assert memory.loss.miner is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = proxies.nonsense


def test_arrays_and_lists_are_taken_for_tensors():
    z, labels = batch()
    criterion = boosted(pml.ContrastiveLoss())
    values = []
    for given in ((z, labels), (z.numpy(), labels.numpy()), (z.tolist(), labels.tolist())):
        augment = iaa.IAA(CLASSES, DIM).fit(*given)
        torch.testing.assert_close(augment.mean, iaa.estimate(z, labels, num_classes=CLASSES).mean)
        torch.manual_seed(1)
        values.append(criterion(*given))
    assert values[0] == values[1] == values[2]


def test_training_without_statistics_warns_once():
    z, labels = batch()
    criterion = boosted(pml.ContrastiveLoss(), fit=False)
    with pytest.warns(UserWarning, match="BoostedLoss trains without synthetics"):
        criterion(z, labels)
    criterion(z, labels)  # a second warning would be an error


SHARED = [
    (CosineSimilarity, {}),
    (LpDistance, {"power": 2}),
    (LpDistance, {"normalize_embeddings": False}),
    (DotProductSimilarity, {}),
    (SNRDistance, {}),
]


@pytest.mark.parametrize(("kind", "options"), SHARED)
def test_distances_that_loss_and_miner_share_are_computed_once(kind, options):
    z, labels = batch()

    class Counting(kind):
        calls = 0

        def compute_mat(self, *arguments):
            type(self).calls += 1
            return super().compute_mat(*arguments)

    def both(distance):
        parts = pml.MultiSimilarityLoss, losses.HardPairs
        loss, miner = (part(distance=distance(**options)) for part in parts)
        return BoostedLoss(loss, augment, miner)

    augment = iaa.IAA(CLASSES, DIM).fit(*batch(100))
    shared, apart = both(kind), both(Counting)  # a class that is not PML's is asked by both
    assert shared.parts[0].shares_distance
    assert not apart.parts[0].shares_distance
    values, Counting.calls = [], 0
    for criterion in (shared, apart):
        torch.manual_seed(4)
        values.append(criterion(z, labels))
    torch.testing.assert_close(*values)
    assert Counting.calls == 2
    assert "forward" not in vars(shared.loss.distance)


def test_the_multi_similarity_miner_of_pml_does_not_sort(monkeypatch: pytest.MonkeyPatch):
    z, labels = torch.randn(24, 8), torch.arange(24) % 6
    augment = iaa.IAA(num_classes=6, dim=8).fit(z, labels)
    miner = miners.MultiSimilarityMiner()
    ours = iaa.BoostedLoss(pml.MultiSimilarityLoss(), augment, losses.HardPairs())
    theirs = iaa.BoostedLoss(pml.MultiSimilarityLoss(), augment, miner)
    monkeypatch.setattr(torch, "sort", None)  # PML's own way calls it twice
    values = []
    for criterion in (ours, theirs):
        torch.manual_seed(0)
        values.append(criterion(z, labels))
    assert values[0] == values[1]
    assert theirs.num_positives == ours.num_positives == miner.num_pos_pairs
    assert "mine" not in vars(miner)
