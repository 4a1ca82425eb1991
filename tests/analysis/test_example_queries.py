import torch

from iaa import Embeddings
from iaa.analysis.example_queries import class_scores, from_different_classes, retrieve, typical, worst
from iaa.retrieval.evaluation import evaluate


def cloud(classes=6, each=4, spread=0.8):
    labels = torch.arange(classes).repeat_interleave(each)
    return torch.randn(classes, 5)[labels] + spread * torch.randn(len(labels), 5), labels


def by_hand(z, labels, query, gallery, count):
    """Sort all similarities of one query; a row is no retrieve to itself."""
    unit = z / z.norm(dim=1, keepdim=True)
    order = sorted(gallery, key=lambda row: (-float(unit[query] @ unit[row]), row))
    order = [row for row in order if row != query][:count]
    return order, [bool(labels[row] == labels[query]) for row in order]


def test_answers_are_the_nearest_others():
    z, labels = cloud()
    retrieved = evaluate(Embeddings(z, labels))
    asked = torch.tensor([3, 0, 17])
    got = retrieve(retrieved, asked, count=5)
    for position, query in enumerate(asked.tolist()):
        rows, right = by_hand(z, labels, query, range(len(z)), 5)
        assert got.nearest[position].tolist() == rows
        assert got.right[position].tolist() == right
    assert (got.similarity[:, :-1] >= got.similarity[:, 1:]).all()


def test_queries_and_gallery_may_be_apart():
    z, labels = cloud()
    roles = ["query" if row % 4 == 0 else "gallery" for row in range(len(z))]
    retrieved = evaluate(Embeddings(z, labels, role=roles))
    got = retrieve(retrieved, torch.tensor([4]), count=3)
    gallery = [row for row in range(len(z)) if row % 4]
    assert got.nearest[0].tolist() == by_hand(z, labels, 4, gallery, 3)[0]


def test_there_are_no_more_answers_than_others():
    retrieved = evaluate(Embeddings(torch.randn(4, 3), torch.tensor([0, 0, 1, 1])), ks=(1,))
    assert retrieve(retrieved, torch.tensor([0]), count=9).nearest.shape == (1, 3)


def test_typical_queries_are_of_different_classes_and_of_the_seed():
    retrieved = evaluate(Embeddings(*cloud()))
    first = typical(retrieved, 6, seed=1)
    assert retrieved.data.labels[first].unique().numel() == 6
    assert torch.equal(first, typical(retrieved, 6, seed=1))
    assert not torch.equal(first, typical(retrieved, 6, seed=2))
    assert len(typical(retrieved, 100)) == 24  # no more than there are
    assert typical(retrieved, 100).unique().numel() == 24


def test_the_worst_have_the_lowest_scores():
    retrieved = evaluate(Embeddings(*cloud(classes=10, spread=1.5)))
    scores = retrieved.result.map_at_r
    rows = worst(retrieved, 10)
    lowest = [min(scores[retrieved.data.labels == label].tolist()) for label in range(10)]
    assert sorted(scores[rows].tolist()) == sorted(lowest)
    assert scores[rows].tolist() == sorted(scores[rows].tolist())


def test_among_equally_bad_the_surest_error_comes_first():
    z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.01], [0.2, 1.0]])
    retrieved = evaluate(Embeddings(z, torch.tensor([0, 0, 1, 1])), ks=(1,))
    assert retrieved.result.map_at_r.tolist() == [0, 0, 0, 0]
    assert worst(retrieved, 1).item() in (0, 2)  # cosine 0.99995; rows 1 and 3 only 0.98


def test_class_scores_are_means_over_queries():
    retrieved = evaluate(Embeddings(*cloud()))
    values = retrieved.values()["R@1"]
    for label, score in class_scores(retrieved, "R@1").items():
        mine = [float(v) for v, own in zip(values, retrieved.classes, strict=True) if own == label]
        assert abs(score - sum(mine) / len(mine)) < 1e-9


def test_apart_takes_one_of_each_class_before_a_second():
    labels = torch.tensor([5, 5, 5, 7, 7, 9])
    rows = torch.tensor([1, 0, 4, 3, 5, 2])
    assert from_different_classes(rows, labels, 4).tolist() == [1, 4, 5, 0]
