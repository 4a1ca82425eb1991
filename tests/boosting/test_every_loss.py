"""Every loss and miner that pytorch-metric-learning exports, boosted, against explicit concatenation."""

import copy
import inspect
import math

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners

import iaa
from iaa.boosting import BoostedLoss

CLASSES, DIM, SIZE, COPIES = 4, 6, 16, 2
ARGUMENTS = {
    "num_classes": CLASSES,
    "embedding_size": DIM,
    "descriptors_dim": DIM,
    "margin": 0.4,
    "Tn": 1,
    "l": DIM,
}
BASES = {"BaseMetricLossFunction", "GenericPairLoss", "BaseLossWrapper", "WeightRegularizerMixin"}
WRAPPERS = {"CrossBatchMemory", "MultipleLosses", "SelfSupervisedLoss", "EmbeddingRegularizerMixin"}
WITHOUT_LABELS = {"ManifoldLoss", "VICRegLoss"}


def exported(module, base):
    found = {name: kind for name, kind in vars(module).items() if inspect.isclass(kind)}
    return {name: kind for name, kind in found.items() if issubclass(kind, base) and kind is not base}


def build(kind):
    required = {
        name
        for base in kind.__mro__
        for name, parameter in inspect.signature(base.__init__).parameters.items()
        if parameter.default is parameter.empty and name in ARGUMENTS
    }
    return kind(**{name: ARGUMENTS[name] for name in required})


LOSSES = {
    name: kind
    for name, kind in exported(pml, torch.nn.Module).items()
    if name not in BASES | WRAPPERS | WITHOUT_LABELS
}
MINERS = exported(miners, miners.BaseMiner)


def test_no_export_is_forgotten():
    assert len(LOSSES) >= 33
    assert {name for name in vars(pml) if name.endswith("Loss")} <= set(
        LOSSES
    ) | WITHOUT_LABELS | WRAPPERS | BASES
    assert len(MINERS) >= 10


@pytest.fixture
def batch():
    labels = torch.arange(SIZE) % CLASSES
    z = torch.randn(SIZE, DIM) + torch.eye(CLASSES, DIM)[labels]
    return z, labels


def boosted(loss, z, labels, miner=None):
    augment = iaa.IAA(CLASSES, DIM, copies=COPIES).fit(z, labels)
    criterion = BoostedLoss(loss, augment, miner)
    torch.manual_seed(1)
    synthetic, synthetic_labels = augment(z, labels)
    torch.manual_seed(1)
    return criterion, torch.cat([z, synthetic]), torch.cat([labels, synthetic_labels])


def pairs(anchors, labels):
    """All pairs of these anchors with all candidates, by two loops, but those of a sample with its copies."""
    positive, negative = [], []
    for i in range(anchors):
        for j in range(len(labels)):
            if labels[i] != labels[j]:
                negative.append((i, j))
            elif i % SIZE != j % SIZE:
                positive.append((i, j))
    return (*torch.tensor(positive).T, *torch.tensor(negative).T)


def nca(z, labels, candidates, candidate_labels):
    total = 0.0
    z, candidates = (torch.nn.functional.normalize(rows, dim=1) for rows in (z, candidates))
    for i in range(len(z)):
        weight = torch.exp(-(z[i] - candidates).square().sum(1))
        weight[i::SIZE] = 0
        total -= torch.log(weight[candidate_labels == labels[i]].sum() / weight.sum()) / len(z)
    return total


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss(name, batch):
    z, labels = batch
    loss = build(LOSSES[name])
    criterion, everything, all_labels = boosted(copy.deepcopy(loss), z, labels)
    if name == "NCALoss":
        expected = nca(z, labels, everything, all_labels)
    elif criterion.anchors == "originals":
        expected = loss(z, labels, pairs(SIZE, all_labels), everything, all_labels)
    elif criterion.takes_pairs:
        expected = loss(everything, all_labels, pairs(SIZE * (1 + COPIES), all_labels))
    else:
        order = all_labels.argsort(stable=True)
        expected = loss(everything[order], all_labels[order])
    torch.testing.assert_close(criterion(z, labels), expected)


@pytest.mark.parametrize("name", sorted(WITHOUT_LABELS))
def test_losses_without_labels_say_so(name, batch):
    criterion = boosted(build(getattr(pml, name)), *batch)[0]
    with pytest.raises(ValueError, match="labels"):
        criterion(*batch)


class Watch(pml.BaseMetricLossFunction):
    """Keeps the pairs it is given."""

    def compute_loss(self, embeddings, labels, indices_tuple, ref_emb, ref_labels):
        self.chosen = indices_tuple
        a, p = indices_tuple[:2]
        value = self.distance(embeddings, ref_emb)[a, p].sum()
        return {"loss": {"losses": value, "indices": None, "reduction_type": "already_reduced"}}


def as_sets(chosen):
    """Positive and negative pairs, or triplets, in no order."""
    if len(chosen) == 3:
        return set(zip(*(index.tolist() for index in chosen), strict=True))
    a, p, b, n = (index.tolist() for index in chosen)
    return set(zip(a, p, strict=True)), set(zip(b, n, strict=True))


STRATEGIES = [("BatchEasyHardMiner", positives) for positives in ("easy", "hard", "semihard")]
BLIND = {"EmbeddingsAlreadyPackagedAsTriplets"}  # looks neither at labels nor at embeddings


@pytest.mark.parametrize(
    ("name", "positives"), [(name, "") for name in MINERS if name not in BLIND] + STRATEGIES
)
def test_every_miner(name, positives, batch):
    """Each anchor is mined by itself among candidates from which it and its copies were taken away."""
    z, labels = batch
    miner = MINERS[name](**({"pos_strategy": positives, "neg_strategy": "hard"} if positives else {}))
    criterion, everything, all_labels = boosted(Watch(), z, labels, copy.deepcopy(miner))
    criterion(z, labels)
    chosen = criterion.loss.chosen
    assert not (chosen[0] % SIZE == chosen[1] % SIZE).any()
    if name in ("DistanceWeightedMiner", "UniformHistogramMiner"):  # chance decides: no two runs agree
        assert (chosen[1] >= SIZE).any()
        assert (all_labels[chosen[0]] == all_labels[chosen[1]]).all()
        assert (all_labels[chosen[-2] if len(chosen) == 4 else chosen[0]] != all_labels[chosen[-1]]).all()
        return
    if name == "HDCMiner":  # the farthest half of all positives: own copies are in what half is taken of
        a, p, b, n = pairs(SIZE, all_labels)
        half = math.ceil((len(a) + SIZE * (1 + COPIES)) / 2)
        farthest = miner.distance(z, everything)[a, p].argsort(descending=True)[:half]
        nearest = miner.distance(z, everything)[b, n].argsort()[: math.ceil(len(b) / 2)]
        assert as_sets(chosen) == as_sets((a[farthest], p[farthest], b[nearest], n[nearest]))
        return
    parts = []
    for i in range(SIZE):
        others = torch.tensor([j for j in range(len(everything)) if j % SIZE != i])
        mined = miner(z[i : i + 1], labels[i : i + 1], everything[others], all_labels[others])
        is_anchor = (True, False, False) if len(mined) == 3 else (True, False, True, False)
        parts.append(
            tuple(index + i if a else others[index] for index, a in zip(mined, is_anchor, strict=True))
        )
    assert as_sets(chosen) == as_sets(tuple(map(torch.cat, zip(*parts, strict=True))))
