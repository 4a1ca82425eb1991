import math

import pytest
import torch

import iaa
from iaa.retrieval.classify import Identifier, class_gaussians, frame, likelihood_ratio
from iaa.retrieval.open_set import auroc, draw_shots


def blobs(classes=12, each=9, dim=6, *, noise=0.3, seed=0):
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(each)
    centre = torch.randn(classes, dim, generator=g)
    return centre[labels] + noise * torch.randn(len(labels), dim, generator=g), labels


def literal_cosine(x, y) -> float:
    dot = sum(float(a) * float(b) for a, b in zip(x, y, strict=True))
    return dot / math.sqrt(sum(float(a) ** 2 for a in x) * sum(float(b) ** 2 for b in y))


def literal_density(x, mean, variance) -> float:
    return -0.5 * sum(
        (float(a) - float(m)) ** 2 / float(v) + math.log(2 * math.pi * float(v))
        for a, m, v in zip(x, mean, variance, strict=True)
    )


def test_the_nearest_image_is_a_loop_over_all_images():
    z, labels = blobs()
    query, _ = blobs(each=2, seed=1)
    guess = Identifier(z, labels * 7 + 3, how="image").rank(query, top=4)
    for row, x in enumerate(query):
        best: dict[int, float] = {}
        for y, label in zip(z, labels.tolist(), strict=True):
            best[label] = max(best.get(label, -2.0), literal_cosine(x, y))
        order = sorted(best, key=lambda label: -best[label])[:4]
        assert guess.label[row].tolist() == [7 * label + 3 for label in order]
        torch.testing.assert_close(guess.score[row], torch.tensor([best[label] for label in order]))


def test_the_nearest_mean_is_the_mean_of_unit_vectors():
    z, labels = blobs()
    query, _ = blobs(each=2, seed=1)
    guess = Identifier(z, labels, how="mean").rank(query, top=3)
    unit = [x / x.norm() for x in z]
    means = [sum(unit[i] for i in range(len(z)) if labels[i] == c) / 9 for c in range(12)]
    for row, x in enumerate(query):
        cosine = [literal_cosine(x, mean) for mean in means]
        order = sorted(range(12), key=lambda c: -cosine[c])[:3]
        assert guess.label[row].tolist() == order
        torch.testing.assert_close(guess.score[row], torch.tensor([cosine[c] for c in order]))


def test_likelihoods_are_those_of_corrected_gaussians_worked_out_by_hand():
    z, labels = blobs(classes=7, each=4)
    others = blobs(classes=5, each=8, seed=2)
    query, _ = blobs(classes=3, each=2, seed=3)
    options = {"neighbors": 3, "global_share": 0.2}
    found = class_gaussians(z, labels, reference=others, floor=0.3, **options)
    both = torch.cat([z, others[0]]), torch.cat([labels, others[1] + 7])
    stats = iaa.estimate(*both, num_classes=12)
    corrected = iaa.correct(stats, **options)
    level = float(iaa.global_variance(stats).mean())
    centre = both[0].mean(0)
    total = (both[0] - centre).square().mean(0)  # variance around the overall mean: within and between
    spread = 0.7 * total + 0.3 * total.mean()
    ratio = likelihood_ratio(query, found)
    for row, x in enumerate(query):
        anything = literal_density(x, centre, spread)
        for c in range(7):
            variance = (0.7 * corrected[c] + 0.3 * level) * (1 + 1 / 4)
            mean = stats.mean[c] / stats.mean[c].norm()
            expected = (literal_density(x, mean, variance) - anything) / 6
            assert float(ratio[row, c]) == pytest.approx(expected, abs=1e-4)


def test_in_the_frame_the_average_covariance_is_the_identity():
    z, labels = blobs(classes=30, each=20, dim=4, noise=0.2)
    z = z * torch.tensor([1.0, 3.0, 0.5, 1.0])
    unit = torch.nn.functional.normalize(z, dim=1)
    seen = frame(z, labels, shrink=1e-9)
    rows = (unit - seen.centre) @ seen.turn
    mean = torch.stack([rows[labels == c].mean(0) for c in range(30)])
    off = rows - mean[labels]
    torch.testing.assert_close(off.T @ off / len(off), torch.eye(4), atol=1e-3, rtol=0)
    half = frame(z[:300], labels[:300], reference=(z[300:], labels[300:]), shrink=1e-9)
    torch.testing.assert_close(half.turn, seen.turn, rtol=1e-3, atol=1e-3)
    flat = frame(z, labels, shrink=1.0).turn  # no direction is better known than another
    torch.testing.assert_close(flat, flat[0, 0] * torch.eye(4), rtol=1e-4, atol=1e-4 * float(flat[0, 0]))


def test_one_image_of_each_class_borrows_what_images_differ_by():
    """Along the first axis all classes vary; only those who borrow know that it says little."""
    g = torch.Generator().manual_seed(0)
    noise = torch.tensor([0.5, 0.03, 0.03, 0.03])
    centre = torch.nn.functional.normalize(torch.randn(60, 4, generator=g), dim=1)
    z = centre.repeat_interleave(30, 0) + noise * torch.randn(1800, 4, generator=g)
    labels = torch.arange(60).repeat_interleave(30)
    taken = draw_shots(labels, 1, g) & (labels >= 30)
    asks = ~taken & (labels >= 30)
    right = {}
    for how in ("gaussian", "mean", "image"):
        lenders = z[labels < 30], labels[labels < 30]
        found = Identifier(z[taken], labels[taken], how=how, reference=lenders).rank(z[asks], top=1)
        right[how] = float((found.label[:, 0] == labels[asks]).double().mean())
    assert right["gaussian"] > right["mean"] + 0.05
    assert right["mean"] == pytest.approx(right["image"])  # with one image they are the same


@pytest.mark.parametrize("how", ["image", "mean", "gaussian"])
def test_blocks_and_row_order_do_not_matter(how, monkeypatch):
    from iaa.retrieval import classify

    z, labels = blobs()
    query, _ = blobs(each=5, seed=1)
    whole = Identifier(z, labels, how=how).rank(query)
    order = torch.randperm(len(z))
    monkeypatch.setattr(classify, "BLOCK", 1)
    blocked = Identifier(z[order], labels[order], how=how).rank(query)
    assert torch.equal(blocked.label, whole.label)
    torch.testing.assert_close(blocked.score, whole.score, rtol=1e-3, atol=1e-4)


def test_single_images_with_nobody_to_borrow_from_still_work():
    z, labels = blobs(each=1)
    found = Identifier(z, labels, how="gaussian").rank(z, top=1)
    assert torch.equal(found.label[:, 0], labels)
    assert found.score.isfinite().all()
    assert Identifier(z, labels).rank(z, top=99).label.shape == (12, 12)


@pytest.mark.usefixtures("unchecked")
def test_invalid_arguments_are_refused():
    z, labels = blobs()
    with pytest.raises(ValueError, match=r"how must be one of .* got 'median' \(did you mean 'mean'\?\)"):
        Identifier(z, labels, how="median")
    with pytest.raises(ValueError, match="query must have 6 dimensions, got 2"):
        Identifier(z, labels).rank(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="top must be 1 or more, got 0"):
        Identifier(z, labels).rank(z, top=0)
    with pytest.raises(ValueError, match=r"shrink must lie in \(0, 1\], got 0"):
        Identifier(z, labels, shrink=0)
    with pytest.raises(ValueError, match=r"floor must lie in \[0, 1\], got 2"):
        Identifier(z, labels, floor=2)


def test_auroc_is_a_count_of_pairs():
    g = torch.Generator().manual_seed(0)
    known, unknown = (
        torch.randint(0, 9, (40,), generator=g) / 8 + 0.2,
        torch.randint(0, 9, (30,), generator=g) / 8,
    )
    known = (known * 8).round() / 8  # ties
    pairs = [(float(a) > float(b)) + 0.5 * (float(a) == float(b)) for a in known for b in unknown]
    assert auroc(known, unknown) == pytest.approx(sum(pairs) / len(pairs))


def test_shots_are_drawn_from_every_class_without_favour():
    labels = torch.tensor([5] * 6 + [2] * 2 + [9])
    g = torch.Generator().manual_seed(0)
    masks = torch.stack([draw_shots(labels, 3, g) for _ in range(2000)])
    assert (masks[:, :6].sum(1) == 3).all()
    assert masks[:, 6:].all()
    torch.testing.assert_close(
        masks[:, :6].double().mean(0), torch.full((6,), 0.5).double(), atol=0.05, rtol=0
    )
