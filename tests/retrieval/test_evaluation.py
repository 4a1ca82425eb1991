"""Who asks whom: roles, images that are query and gallery at once, and sequences."""

from functools import partial

import pytest
import torch

import oracles_retrieval
from iaa.retrieval import index
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.evaluation import evaluate, worst_classes
from iaa.retrieval.metrics import score_queries

KS = (1, 2, 4)


def data(size=40, *, role=None, sequence=None, dim=5):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(size) % 6
    z = torch.randn(6, dim, generator=generator)[labels] + torch.randn(size, dim, generator=generator)
    return Embeddings(z, labels, role=role or [], sequence=sequence or [])


def test_an_evaluation_shows_its_scores():
    given = data()
    scores = {name: float(value.mean()) for name, value in evaluate(given, ks=KS).values().items()}
    shown = ", ".join(f"{name} {value:.1f}" for name, value in scores.items())
    assert repr(evaluate(given, ks=KS)) == f"Evaluation({shown}; 40 queries)"


def by_loops(data, queries, gallery, ignored):
    """Every metric of every query, where ``ignored(q, g)`` tells which gallery rows do not count."""
    labels, rows = data.labels.tolist(), data.z.tolist()
    results = []
    for q in queries:
        allowed = [g for g in gallery if not ignored(q, g)]
        order = oracles_retrieval.ranking(rows[q], [rows[g] for g in allowed])
        results.append(oracles_retrieval.metrics(order, labels[q], [labels[g] for g in allowed], KS))
    return results


def check(evaluation, expected):
    counted = [one for one in expected if one is not None]
    values = evaluation.values()
    assert evaluation.result.counted.tolist() == [one is not None for one in expected]
    for name in counted[0]:
        assert values[name].tolist() == pytest.approx([one[name] for one in counted])


@pytest.mark.parametrize("way", ["lists", "sorting", "flat"])
def test_images_that_are_query_and_gallery_at_once_never_answer_themselves(way, monkeypatch):
    role = ["both", "gallery", "query", "both", "gallery"] * 8
    file = data(role=role)
    queries = [row for row, name in enumerate(role) if name != "gallery"]
    gallery = [row for row, name in enumerate(role) if name != "query"]
    if way == "sorting":
        monkeypatch.setattr("iaa.retrieval.cosine.Points.error", 9.0)  # nothing is clear
    evaluation = evaluate(file, ks=KS, index="flat" if way == "flat" else None)
    check(evaluation, by_loops(file, queries, gallery, lambda q, g: q == g))
    assert evaluation.query.tolist() == queries
    assert evaluation.gallery.tolist() == gallery
    for row in worst_classes(evaluation):
        assert row["example"] != row["nearest"]


@pytest.mark.parametrize("way", ["lists", "sorting", "flat"])
@pytest.mark.parametrize("roles", [False, True])
def test_hits_of_the_same_sequence_are_ignored(way, roles, monkeypatch):
    sequence = [f"v{row // 3}" if row % 7 else "" for row in range(40)]
    role = ["query", "gallery", "both", "gallery"] * 10 if roles else None
    file = data(role=role, sequence=sequence)
    if way == "sorting":
        monkeypatch.setattr("iaa.retrieval.cosine.Points.error", 9.0)  # nothing is clear
    evaluation = evaluate(file, ks=KS, index="flat" if way == "flat" else None)
    queries = [row for row in range(40) if not roles or role[row] != "gallery"]
    gallery = [row for row in range(40) if not roles or role[row] != "query"]

    def ignored(q, g):
        return q == g or (sequence[q] == sequence[g] != "")

    check(evaluation, by_loops(file, queries, gallery, ignored))
    near = evaluation.nearest(evaluation.query, count=3)
    for row, answers in zip(queries, near.index.tolist(), strict=True):
        assert not any(ignored(row, answer) for answer in answers)


def test_sequences_survive_saving_and_picking_rows(tmp_path):
    file = data(sequence=[f"v{row // 3}" for row in range(40)])
    for ending in (".safetensors", ".npz", ".npy", ".parquet"):
        file.save(tmp_path / f"x{ending}")
        assert Embeddings.load(tmp_path / f"x{ending}").sequence == file.sequence
    assert file.rows(torch.tensor([5, 0])).sequence == ["v1", "v0"]
    with pytest.raises(ValueError, match="sequence must have 2 entries, one per vector, got 1"):
        Embeddings(torch.eye(2), torch.arange(2), sequence=["a"])


def test_a_file_of_queries_alone_is_refused():
    with pytest.raises(ValueError, match="there must be queries and a gallery, but every role is 'query'"):
        evaluate(data(role=["query"] * 40))


def test_groups_must_fit_the_sets():
    file = data()
    with pytest.raises(ValueError, match=r"groups must have shape \(40,\)"):
        score_queries(file.z, file.labels, groups=(torch.arange(3), torch.arange(40)))


def test_an_approximate_index_says_what_its_scores_are_off_by(monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr(index, "build", partial(index.build, effort=1))  # a poor one
    file = data(600, role=["both", "query", "gallery"] * 200)
    exact, poor = (evaluate(file, ks=KS, index=kind) for kind in (None, "ivf"))
    off = poor.index_error()
    assert exact.index_error() is None
    assert set(off) == {"R@1", "R@2", "R@4", "RP", "MAP@R"}
    for name, value in poor.values().items():  # every query is in the sample
        assert off[name]["mean"] == pytest.approx(float((value - exact.values()[name]).mean()))
        assert off[name]["low"] < off[name]["mean"] < off[name]["high"]
    assert abs(off["RP"]["mean"]) > 1
