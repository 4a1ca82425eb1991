import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles_retrieval as oracle
from iaa.retrieval import tiles
from iaa.retrieval.index import build, measured_recall, search
from iaa.retrieval.knn import knn, without


def literal(z, gallery, k, distance):
    target = z if gallery is None else gallery
    scale = oracle.euclidean_scale(z.tolist(), [] if gallery is None else target.tolist())
    return [
        oracle.ranking(
            row, target.tolist(), own=i if gallery is None else None, distance=distance, scale=scale
        )[:k]
        for i, row in enumerate(z.tolist())
    ]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(["cosine", "euclidean"]), st.booleans(), st.booleans())
def test_equal_to_literal_loops(seed, distance, whole_numbers, split):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(40, 3, generator=g)
    z = z.round() if whole_numbers else z
    gallery = torch.randn(30, 3, generator=g).round() if split else None
    k = int(torch.randint(1, 30, (), generator=g))
    assert knn(z, gallery, k=k, distance=distance).index.tolist() == literal(z, gallery, k, distance)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_blocks_groups_and_budget_change_nothing(monkeypatch, distance):
    g = torch.Generator().manual_seed(0)
    z = torch.randn(1500, 8, generator=g)
    z[::4] = z[torch.randint(0, 1500, (375,), generator=g)]
    plain = knn(z, k=5, distance=distance)
    monkeypatch.setattr(tiles.each_tile, "__defaults__", (96,))
    for budget in (2**28, 2**16):  # one pass; several, of 420 rows
        assert torch.equal(plain.index, knn(z, k=5, distance=distance, budget=budget).index)
    exact = (
        torch.cdist(z.double(), z.double())
        if distance == "euclidean"
        else torch.nn.functional.normalize(z) @ (torch.nn.functional.normalize(z).T)
    )
    torch.testing.assert_close(plain.value, exact.gather(1, plain.index).float(), atol=2e-3, rtol=1e-4)


def test_a_duplicate_is_a_neighbour_and_self_is_not():
    z = torch.tensor([[1.0, 0], [0, 1], [1, 0], [1, 0]])
    assert knn(z, k=2).index.tolist() == [[2, 3], [0, 2], [0, 3], [0, 2]]


def test_equal_vectors_tie_wherever_they_lie():
    g = torch.Generator().manual_seed(1)
    base = torch.randn(1, 512, generator=g)
    z = torch.cat([torch.randn(50, 512, generator=g), base.expand(4000, -1), 4 * base])
    found = knn(torch.randn(3, 512, generator=g) + base, z, k=20)
    assert found.index.tolist() == [list(range(50, 70))] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [({"k": 10}, r"k must lie in \[1, 9\]"), ({"k": 0}, r"k must lie in \[1, 9\]")],
)
def test_k_larger_than_the_gallery(options, message):
    with pytest.raises(ValueError, match=message):
        knn(torch.randn(10, 2), **options)


def test_wrong_dimension():
    with pytest.raises(ValueError, match="dimension 2, got 3"):
        knn(torch.randn(10, 2), torch.randn(10, 3), k=1)


def test_flat_index_equals_exact_and_approximate_ones_state_their_recall():
    z = torch.randn(800, 8, generator=torch.Generator().manual_seed(0))
    flat = build(z, kind="flat", distance="euclidean")
    near = search(flat, z, k=6, distance="euclidean")
    assert torch.equal(
        without(near, near.index == torch.arange(800)[:, None], 5).index,
        knn(z, k=5, distance="euclidean").index,
    )
    assert measured_recall(flat, z, k=5, distance="euclidean", sample=50) == 1
    assert 0.8 < measured_recall(build(z, kind="hnsw"), z, k=5, sample=200) <= 1
    poor, rich = (measured_recall(build(z, kind="ivf", effort=e), z, k=5, sample=200) for e in (1, 16))
    assert poor < rich
