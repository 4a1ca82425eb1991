"""Options of scoring and searching do what the functions behind them do, and refuse what makes no sense."""

from dataclasses import replace

import pytest
import torch

import iaa
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.evaluation import evaluate
from iaa.retrieval.index import Index
from iaa.retrieval.query_expansion import expand
from iaa.retrieval.refinement import Refinement, refined_search
from iaa.retrieval.reranking import rerank


def noisy(classes=12, each=10, dim=16, seed=0):
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(each)
    z = torch.randn(classes, dim, generator=g)[labels] + 1.3 * torch.randn(len(labels), dim, generator=g)
    return Embeddings(z, labels, [str(i) for i in range(len(labels))], split=["test"] * len(labels))


def apart(data, queries=40):
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(1))
    role = ["gallery"] * len(data)
    for row in order[:queries].tolist():
        role[row] = "query"
    asks = torch.tensor([name == "query" for name in role])
    return replace(data, role=role), asks


def mean(evaluation):
    return {name: float(value.mean()) for name, value in evaluation.values().items()}


def test_query_expansion_alone_out_of_one_set_compares_with_the_images_as_they_were():
    data = noisy()
    found = mean(evaluate(data, ks=(1, 3), expand=2))
    moved = expand(data.z, neighbors=2)
    similarity = moved @ torch.nn.functional.normalize(data.z, dim=1).T
    similarity.fill_diagonal_(-2)
    hit = data.labels[similarity.argmax(1)] == data.labels
    assert found["R@1"] == pytest.approx(100 * float(hit.double().mean()))
    assert found["MAP@R"] > mean(evaluate(data, ks=(1,)))["MAP@R"] + 1


def test_queries_and_gallery_are_refined_as_the_functions_say():
    data, asks = apart(noisy())
    z, labels = data.z, data.labels
    gallery = expand(z[~asks], neighbors=3)
    query = expand(z[asks], gallery, neighbors=2)
    expected = iaa.score(query, labels[asks], gallery=(gallery, labels[~asks]), ks=(1, 2))
    assert mean(evaluate(data, ks=(1, 2), expand=2, augment_gallery=3)) == pytest.approx(expected)


@pytest.mark.parametrize("separate", [True, False])
def test_reranked_scores_are_those_of_the_lists(separate):
    data = noisy()
    asks = torch.ones(len(data), dtype=torch.bool)
    if separate:
        data, asks = apart(data)
    others = ~asks if separate else asks
    near = rerank(data.z[asks], data.z[others] if separate else None, k=10, depth=200).index
    hit = data.labels[others][near] == data.labels[asks][:, None]
    found = mean(evaluate(data, ks=(1, 4), rerank=True))
    assert found["R@1"] == pytest.approx(100 * float(hit[:, 0].double().mean()))
    assert found["R@4"] == pytest.approx(100 * float(hit[:, :4].any(1).double().mean()))
    r = (data.labels[others] == data.labels[asks][:, None]).sum(1) - int(not separate)
    precision = [float(row[:n].double().mean()) for row, n in zip(hit, r.tolist(), strict=True)]
    assert found["RP"] == pytest.approx(100 * sum(precision) / len(precision))


def test_a_search_is_refined_query_by_query():
    data, asks = apart(noisy())
    gallery, query = data.z[~asks], data.z[asks]
    index = Index(gallery)

    def search(z, count):
        return index.search(z, top=count)

    found = refined_search(Refinement(expand=2), query, search, lambda rows: gallery[rows], top=5)
    expected = index.search(expand(query, gallery, neighbors=2), top=5)
    torch.testing.assert_close(found.value, expected.value)
    assert torch.equal(found.index, expected.index)
    found = refined_search(Refinement(rerank=True), query, search, lambda rows: gallery[rows], top=5)
    for number in range(len(query)):
        alone = rerank(query[number : number + 1], gallery, k=5, depth=200)
        assert found.index[number].tolist() == alone.index[0].tolist()
    plain = refined_search(Refinement(), query, search, lambda rows: gallery[rows], top=5)
    assert torch.equal(plain.index, index.search(query, top=5).index)


def test_what_does_not_go_together_is_refused():
    data = noisy()
    with pytest.raises(ValueError, match="augment_gallery needs queries apart from the gallery"):
        evaluate(data, augment_gallery=2)
    with pytest.raises(ValueError, match="choose one of them"):
        evaluate(data, expand=2, rerank=True)
    with pytest.raises(ValueError, match="need distance cosine, got euclidean"):
        evaluate(data, expand=2, distance="euclidean")
    with pytest.raises(ValueError, match="leave the index flat out"):
        evaluate(data, rerank=True, index="flat")
    with pytest.raises(ValueError, match="take no sequences"):
        evaluate(replace(data, sequence=["a"] * len(data)), expand=2)
    with pytest.raises(ValueError, match="expand must be"):
        Refinement(expand=-1)


def test_reranking_without_any_positive_is_refused_as_without_it():
    data = Embeddings(torch.randn(6, 3), torch.arange(6))
    for reranked in (False, True):
        with pytest.raises(ValueError, match="no query has a positive"):
            evaluate(data, ks=(1,), rerank=reranked)
