import pytest
import torch

from iaa.retrieval.cosine import points
from iaa.retrieval.index import Index
from iaa.retrieval.knn import knn


def vectors(rows=3000, dim=16, seed=0):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", ["exact", "flat", "hnsw", "ivf"])
def test_every_kind_finds_what_a_full_sort_finds_as_often_as_it_says(kind):
    z, query = vectors(), vectors(200, seed=1)
    index = Index(z, kind=kind, effort=64)
    cosine = (
        torch.nn.functional.normalize(query.double(), dim=1)
        @ torch.nn.functional.normalize(z.double(), dim=1).T
    )
    literal = cosine.argsort(dim=1, descending=True)[:, :10]
    found = index.search(query, top=10)
    share = float((found.index[:, :, None] == literal[:, None]).any(2).double().mean())
    if kind in ("exact", "flat"):
        assert torch.equal(found.index, literal)
        assert index.recall() == 1.0
    else:
        assert index.recall() > 0.8
        assert share == pytest.approx(index.recall(), abs=0.1)
    torch.testing.assert_close(
        found.value[:, 0].double(), cosine.gather(1, found.index)[:, 0], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("kind", ["exact", "flat"])
def test_a_row_that_must_not_answer_does_not(kind):
    z = vectors(50)
    index = Index(z, kind=kind)
    plain = index.search(z[:4], top=50).index
    assert plain[:, 0].tolist() == [0, 1, 2, 3]
    without = index.search(z[:4], top=5, exclude=torch.tensor([0, -1, int(plain[2, 3]), 3]))
    for row, own in enumerate((0, -1, int(plain[2, 3]), 3)):
        assert without.index[row].tolist() == [one for one in plain[row].tolist() if one != own][:5]
    last = index.search(z[:1], top=50, exclude=torch.tensor([0]))
    assert last.index[0, -1] == -1
    assert (last.index[0] >= 0).sum() == 49


def test_a_prepared_gallery_gives_the_same_results_as_one_passed_each_time():
    z, query = vectors(), vectors(7, seed=1)
    again = knn(query, points(z)[1], k=9)
    literal = knn(query, z, k=9)
    assert torch.equal(again.index, literal.index)
    assert torch.equal(again.value, literal.value)
    for odd in (z.double(), z * 1e-30, z.half()):  # ways that copy
        assert torch.equal(knn(query, points(odd)[1], k=9).index, knn(query, odd, k=9).index)
    with pytest.raises(ValueError, match="answers by cosine alone"):
        knn(query, points(z)[1], k=9, distance="euclidean")


@pytest.mark.usefixtures("unchecked")
def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match="index must be one of 'exact', 'flat', 'hnsw', 'ivf'; got 'tree'"):
        Index(vectors(5), kind="tree")
    with pytest.raises(ValueError, match="top must be 1 or more, got 0"):
        Index(vectors(5)).search(vectors(1), top=0)


@pytest.mark.parametrize("kind", ["exact", "flat", "hnsw", "ivf"])
def test_a_gallery_of_one_is_searched_and_several_rows_can_be_left_out(kind):
    if kind != "exact":
        pytest.importorskip("faiss")
    one = Index(vectors(1), kind=kind)
    assert one.search(vectors(1), top=5).index.tolist() == [[0]]
    assert one.recall() is None
    z = vectors(30)
    index = Index(z, kind=kind)
    order = index.search(z[:2], top=30).index
    some = index.search(z[:2], top=4, exclude=torch.stack([order[0, [0, 2, 3]], torch.tensor([1, -1, -1])]))
    assert some.index.tolist() == [order[0, [1, 4, 5, 6]].tolist(), order[1, 1:5].tolist()]


@pytest.mark.parametrize("scale", [1.0, 1e-14, 1e18, 0.0])
def test_a_single_query_gets_the_answer_it_gets_in_a_batch(scale):
    z = vectors()
    queries = vectors(8, seed=1) * scale
    index = Index(z, kind="flat")
    together = index.search(queries, top=5)
    for row in range(8):
        alone = index.search(queries[row : row + 1], top=5)
        assert torch.equal(alone.index[0], together.index[row])
        torch.testing.assert_close(alone.value[0], together.value[row])


def test_a_single_query_that_is_not_finite_is_refused():
    index = Index(vectors(), kind="flat")
    with pytest.raises(ValueError, match="finite"):
        index.search(torch.full((1, 16), torch.nan), top=5)
