import pytest
import torch
import torch.nn.functional as F

import oracles_retrieval as oracles
from iaa.retrieval.knn import knn
from iaa.retrieval.reranking import rerank


@pytest.mark.parametrize(
    ("reciprocal", "smooth", "share"), [(4, 1, 0.3), (6, 3, 0.3), (5, 4, 0.0), (40, 2, 0.5)]
)
@pytest.mark.parametrize("queries", [0, 8])
def test_reranking_is_the_loops(reciprocal, smooth, share, queries):
    labels = torch.arange(30) % 5
    z = torch.randn(5, 6)[labels] + 0.7 * torch.randn(30, 6)
    distance = torch.tensor(oracles.jaccard(z.tolist(), reciprocal, smooth))
    cosine = F.normalize(z, dim=1) @ F.normalize(z, dim=1).T
    similarity = (1 - share) * (1 - distance) + share * cosine
    options = {"reciprocal": reciprocal, "smooth": smooth, "share": share}
    if queries:
        found = rerank(z[:queries], z[queries:], k=10, **options)
        expected = similarity[:queries, queries:].topk(10)
    else:
        found = rerank(z, k=10, **options)
        expected = similarity.fill_diagonal_(-1).topk(10)
    torch.testing.assert_close(found.value, expected.values, rtol=1e-4, atol=1e-5)


def test_the_whole_share_leaves_the_order():
    z = torch.randn(40, 6)
    assert torch.equal(rerank(z, k=9, share=1.0).index, knn(z, k=9).index)


def test_depth_says_which_may_move():
    z = torch.randn(60, 6)
    found = rerank(z, k=5, depth=8).index
    within = knn(z, k=8).index
    assert all(set(a) <= set(b) for a, b in zip(found.tolist(), within.tolist(), strict=True))


def test_it_finds_more_of_the_class():
    torch.manual_seed(0)
    labels = torch.arange(300) % 15
    z = torch.randn(15, 16)[labels] + 0.9 * torch.randn(300, 16)

    def precision(index: torch.Tensor) -> float:
        return float((labels[index] == labels[:, None]).float().mean())

    assert precision(rerank(z, k=19).index) > precision(knn(z, k=19).index) + 0.03


def test_bad_input_is_named():
    z = torch.randn(6, 3)
    for options, message in (
        ({"k": 6}, r"k must lie in \[1, 5\]"),
        ({"k": 5, "depth": 4}, "depth must be at least k=5, got 4"),
        ({"k": 2, "share": 1.5}, r"share must lie in \[0, 1\]"),
        ({"k": 2, "smooth": 0}, "smooth must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            rerank(z, **options)
