import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import iaa
import oracles_retrieval as oracle
from iaa.retrieval import knn, metrics, tiles
from iaa.retrieval.metrics import score_queries

KS = (1, 2, 5)


def check(z, labels, gallery=None, distance="cosine"):
    expected = oracle.score(z, labels, gallery=gallery, ks=KS, distance=distance)
    result = score_queries(z, labels, gallery=gallery, depth=max(KS), distance=distance)
    got = result.values(KS)
    assert result.counted.tolist() == [one is not None for one in expected]
    for name, value in got.items():
        wanted = [0.0 if one is None else one[name] for one in expected]
        torch.testing.assert_close(value, torch.tensor(wanted, dtype=torch.float64), rtol=0, atol=1e-9)


def long_tail(size, generator):
    """Some classes of many, many of one."""
    return (torch.rand(size, generator=generator) ** 3 * size / 2).long()


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("kind", ["gaussian", "ties", "duplicates", "far", "zeros", "tiny"])
@pytest.mark.parametrize("split", [False, True])
def test_equal_to_literal_loops(distance, kind, split):
    g = torch.Generator().manual_seed(3)
    z = torch.randn(90, 5, generator=g)
    if kind == "ties":
        z = torch.randint(-1, 2, (90, 3), generator=g).float()
    elif kind == "duplicates":
        z = z[torch.randint(0, 20, (90,), generator=g)]
    elif kind == "far":
        z = z + 300
    elif kind == "zeros":
        z[::7] = 0
    elif kind == "tiny":
        z = (
            z * torch.where(torch.arange(90) % 2 == 0, 1e-36, 1e30)[:, None]
            if distance == "cosine"
            else z * 1e-36
        )
    labels = long_tail(90, g)
    if split:
        check(z[:35], labels[:35], (z[35:], labels[35:]), distance)
    else:
        check(z, labels, distance=distance)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_equal_to_literal_loops_whatever_comes(data):
    size = data.draw(st.integers(8, 40))
    dim = data.draw(st.integers(1, 4))
    entries = st.lists(st.integers(-3, 3), min_size=size * dim, max_size=size * dim)
    z = torch.tensor(data.draw(entries), dtype=torch.float32).view(size, dim)
    labels = torch.tensor(data.draw(st.lists(st.integers(-2, 5), min_size=size, max_size=size)))
    labels[:3] = torch.tensor([0, 0, 1])  # two classes and a positive
    check(z, labels, distance=data.draw(st.sampled_from(["cosine", "euclidean"])))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.permutations(range(30)))
def test_relabelling_scaling_and_reordering_change_nothing(seed, order):
    g = torch.Generator().manual_seed(seed)
    z, labels = torch.randn(30, 6, generator=g), torch.randint(0, 6, (30,), generator=g).repeat(1)
    labels[:2] = 0
    labels[2] = 1
    order = torch.tensor(order)
    scale = torch.rand(30, 1, generator=g) * 2 + 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # queries without a positive
        plain = iaa.score(z, labels, ks=(1, 3))
        moved = iaa.score((z * scale)[order], labels[order] * 1000 - 7, ks=(1, 3))
    assert plain == pytest.approx(moved)


def accuracy_calculator(**options):
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    return AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision_at_r"), **options
    )


def as_ours(scores):
    names = {"precision_at_1": "R@1", "r_precision": "RP", "mean_average_precision_at_r": "MAP@R"}
    return {name: 100 * scores[theirs] for theirs, name in names.items()}


@pytest.mark.parametrize("shape", [(400, 8, 80), (300, 32, 6)])
def test_equal_to_pml(shape):
    size, dim, classes = shape
    g = torch.Generator().manual_seed(1)
    labels = torch.arange(classes).repeat(2)
    labels = torch.cat([labels, torch.randint(0, classes, (size - len(labels),), generator=g)])
    z = torch.nn.functional.normalize(torch.randn(size, dim, generator=g) + 0.5 * labels[:, None].sin())
    theirs = as_ours(accuracy_calculator(k="max_bin_count").get_accuracy(z, labels))
    ours = iaa.score(z, labels, ks=(1,))
    assert ours == pytest.approx(theirs, abs=1e-6)
    query, gallery = slice(0, size // 3), slice(size // 3, None)
    theirs = as_ours(
        accuracy_calculator(k="max_bin_count").get_accuracy(
            z[query], labels[query], z[gallery], labels[gallery]
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # queries without a positive, which PML leaves out as well
        ours = iaa.score(z[query], labels[query], gallery=(z[gallery], labels[gallery]), ks=(1,))
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_large_labels_stay_distinct_where_pml_confuses_them():
    """PML passes labels through float32, where 2**24 and 2**24 + 1 are one number: its scores are wrong."""
    g = torch.Generator().manual_seed(0)
    z, labels = torch.randn(60, 4, generator=g), torch.arange(60) // 2
    large = labels + 2**24
    expected = iaa.score(z, labels, ks=(1, 4))
    assert iaa.score(z, large, ks=(1, 4)) == expected
    assert iaa.score(z, labels + 2**62, ks=(1, 4)) == expected
    unit = torch.nn.functional.normalize(z)
    assert as_ours(accuracy_calculator(k="max_bin_count").get_accuracy(unit, labels))["R@1"] == (
        pytest.approx(expected["R@1"], abs=1e-6)
    )
    confused = as_ours(accuracy_calculator(k=10).get_accuracy(unit, large))
    assert confused["R@1"] != pytest.approx(expected["R@1"], abs=1e-6)


def medium(seed=0, size=1500, dim=12, classes=300):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (size,), generator=g)
    z = torch.randn(classes, dim, generator=g)[labels] + torch.randn(size, dim, generator=g)
    z[::5] = z[torch.randint(0, size, (len(z[::5]),), generator=g)]  # duplicates across classes
    return z, labels


def same(a, b):
    return all(
        torch.equal(getattr(a, n), getattr(b, n)) for n in ("positives", "first", "r_precision", "map_at_r")
    )


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_neither_tiles_nor_threads_nor_passes_change_a_bit(monkeypatch, distance):
    z, labels = medium()
    plain = score_queries(z, labels, depth=50, distance=distance)
    monkeypatch.setattr(tiles.each_tile, "__defaults__", (96,))
    assert same(plain, score_queries(z, labels, depth=50, distance=distance))
    torch.set_num_threads(1)
    assert same(plain, score_queries(z, labels, depth=50, distance=distance))
    assert same(plain, score_queries(z, labels, depth=50, distance=distance, budget=2**16))
    monkeypatch.setattr(metrics, "_SHALLOW", 2)  # then many a query goes deeper
    assert same(plain, score_queries(z, labels, depth=50, distance=distance))


def test_memory_does_not_grow_with_the_gallery():
    """One class of every second row: lists of all queries would take 5,000 x 2,500 entries."""
    z, labels = torch.randn(5000, 8, generator=torch.Generator().manual_seed(0)), torch.arange(5000)
    labels[::2] = -1
    lengths = []
    original = knn.TopLists

    def counted(size, length, device):
        lengths.append((size, length))
        return original(size, length, device)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knn, "TopLists", counted)
        score_queries(z, labels, depth=1, budget=2**22)
    assert sum(size for size, _ in lengths) == 2500
    assert max(size * length for size, length in lengths) * 8 <= 2**22


def test_leave_one_out_equals_a_gallery_of_all_others():
    z, labels = medium(size=200, classes=40)
    whole = score_queries(z, labels, depth=10)
    for row in range(0, 200, 17):
        others = torch.arange(200) != row
        if not (labels[others] == labels[row]).any():
            continue
        one = score_queries(z[[row]], labels[[row]], gallery=(z[others], labels[others]), depth=10)
        assert one.first[0] == whole.first[row]
        assert one.map_at_r[0] == pytest.approx(float(whole.map_at_r[row]))


def test_a_collapsed_model_is_scored_by_index_and_does_not_hang():
    """All vectors equal: every similarity ties, so the order is that of the rows."""
    labels = torch.arange(300) % 3
    check(torch.ones(120, 4), labels[:120])
    result = score_queries(torch.ones(3000, 64), torch.arange(3000) // 2, depth=1)
    assert float(result.recall(1).sum()) == 2  # row 1 finds row 0; row 0, itself left out, finds row 1


def test_whole_rows_are_sorted_only_where_similarities_are_too_close(monkeypatch):
    monkeypatch.setattr(knn, "full_rows", None)  # would raise if called
    z, labels = torch.randn(500, 16, generator=torch.Generator().manual_seed(0)), torch.arange(500) // 5
    score_queries(z, labels, depth=8)
    with pytest.raises(TypeError, match="NoneType"):
        score_queries(torch.ones(500, 16), labels, depth=8)


def test_half_precision_and_double_are_accepted():
    z, labels = medium(size=200, classes=40)
    assert iaa_close(z.double(), z, labels)
    iaa.score(z.half()[labels < 20], labels[labels < 20] // 4, ks=(1,))


def iaa_close(a, b, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return iaa.score(a, labels, ks=(1,)) == pytest.approx(iaa.score(b, labels, ks=(1,)))


def test_autocast_and_low_matmul_precision_do_not_reach_the_scores():
    z, labels = medium()
    plain = score_queries(z, labels, depth=8)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert same(plain, score_queries(z, labels, depth=8))
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_queries_without_a_positive_are_counted_aloud():
    z, labels = torch.eye(5), torch.tensor([0, 0, 1, 2, 3])
    with pytest.warns(UserWarning, match="3 of 5 queries have no positive"):
        iaa.score(z, labels, ks=(1,))


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_faiss_indexes_score_alike(kind):
    z, labels = medium(size=600, classes=120)
    labels = labels % 60
    z = z + 0.01 * torch.randn(z.shape, generator=torch.Generator().manual_seed(5))  # no ties
    assert iaa.score(z, labels, ks=(1, 10), index=kind) == pytest.approx(
        iaa.score(z, labels, ks=(1, 10)), abs=3
    )


Z, LABELS = torch.randn(10, 4, generator=torch.Generator().manual_seed(0)), torch.arange(10) // 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"z": Z.index_fill(0, torch.tensor([3, 7]), torch.nan)}, "NaN or infinity in 2 of 10 rows, first 3"),
        ({"ks": (1, 10)}, r"ks must lie in \[1, 9\], the neighbours a query has, got 10"),
        ({"ks": (0,)}, r"ks must lie in \[1, 9\]"),
        ({"ks": ()}, "got none"),
        ({"labels": LABELS * 0 + 4}, "two classes or more, got only class 4"),
        ({"labels": torch.arange(10)}, "no query has a positive"),
        ({"labels": LABELS[:9]}, r"labels must have shape \(10,\)"),
        ({"labels": LABELS.float()}, "labels must be integers, got float32"),
        ({"gallery": (Z[:0], LABELS[:0])}, "gallery must hold at least one vector"),
        ({"gallery": (Z[:, :3], LABELS)}, "gallery must have the queries' dimension 4, got 3"),
        ({"gallery": (Z, LABELS + 100)}, "no query has a positive"),
        ({"distance": "cosin"}, "did you mean 'cosine'"),
        ({"index": "hsnw"}, "did you mean 'hnsw'"),
        ({"z": Z.long()}, "floating numbers"),
    ],
)
def test_bad_input_says_what_was_expected_and_what_came(arguments, message):
    given = {"z": Z, "labels": LABELS, "ks": (1,)} | arguments
    with pytest.raises(ValueError, match=message) as error:
        iaa.score(given.pop("z"), given.pop("labels"), **given)
    assert "\n" not in str(error.value)


def test_every_tile_is_visited_once():
    seen = torch.zeros(150, 150)
    points = metrics.points(torch.randn(150, 3))

    def look(tile):
        height, width = tile.similarity.shape
        seen[tile.top : tile.top + height, tile.left : tile.left + width] += 1
        if tile.mirrored:
            seen.T[tile.top : tile.top + height, tile.left : tile.left + width] += 1

    order = torch.arange(150)
    tiles.each_tile(*points, order, order, look, lambda done: None, 64)
    assert (seen == 1).all()
    seen.zero_()
    tiles.each_tile(*points, order[:70], order, look, lambda done: None, 64)  # mirrored among the first 70
    assert (seen[:70] == 1).all()
    assert (seen[70:] == 0).all()
    seen.zero_()
    done = []
    tiles.each_tile(*points, order, order, look, done.append, 75)  # two tiles a side: by whole rows
    assert (seen == 1).all()
    assert done == [1.0]


@pytest.mark.parametrize("size", [1e-30, 1e19, 1e36])
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("index", [None, "flat"])
def test_the_scale_of_the_embeddings_changes_no_score(size, distance, index):
    z, labels = torch.randn(200, 12, generator=torch.Generator().manual_seed(0)), torch.arange(200) % 30
    expected = iaa.score(z, labels, distance=distance)
    if index == "flat" and distance == "euclidean" and size > 1:
        with pytest.raises(ValueError, match="gallery is too large for an index by Euclidean distance"):
            iaa.score(z * size, labels, distance=distance, index=index)
    elif index is None or distance == "cosine":
        assert iaa.score(z * size, labels, distance=distance, index=index) == pytest.approx(expected)


def test_half_precision_near_its_end_is_scored():
    z, labels = medium(size=100)[0], torch.arange(100) % 20
    z = (z / z.abs().max() * 65504).half()
    assert iaa.score(z, labels) == pytest.approx(iaa.score(z.double(), labels))


def test_norms_beyond_float64_are_refused():
    z, labels = medium(size=50, classes=10)
    with pytest.raises(ValueError, match="norms between 1e-150 and 1e150"):
        iaa.score(z.double() * 1e160, labels)
