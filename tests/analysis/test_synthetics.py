import pytest
import torch

import iaa
from iaa.analysis.synthetics import choose, draw, project, synthetic_neighbors

pytest.importorskip("sklearn")


def clouds(classes=8, each=6, dim=5):
    labels = 10 + 3 * torch.arange(classes).repeat_interleave(each)  # labels need not count from 0
    z = 4 * torch.randn(classes, dim).repeat_interleave(each, 0) + 0.3 * torch.randn(len(labels), dim)
    known, numbers = labels.unique(return_inverse=True)
    augment = iaa.IAA(len(known), dim, neighbors=3, copies=2)
    augment.fit(z, numbers)
    return z, labels, augment


def test_chosen_rows_are_of_some_classes_and_not_too_many_of_each():
    labels = torch.arange(20).repeat_interleave(torch.arange(20) + 1)
    rows = choose(labels, classes=7, per_class=4, seed=0)
    known, sizes = labels[rows].unique(return_counts=True)
    assert len(known) == 7
    assert 0 not in known  # of one sample
    assert sizes.tolist() == [min(4, label + 1) for label in known.tolist()]
    assert rows.unique().numel() == len(rows)
    assert labels[rows].tolist() == sorted(labels[rows].tolist())
    assert torch.equal(rows, choose(labels, classes=7, per_class=4, seed=0))


def test_originals_and_synthetics_share_a_map():
    z, labels, augment = clouds()
    result = project(z, labels, augment, classes=4, copies=3, seed=0)
    assert result.originals.shape == (24, 2)
    assert result.synthetics.shape == (24, 3, 2)
    assert result.labels.tolist() == labels[result.rows].tolist()
    apart = torch.cdist(result.synthetics[:, 0], result.originals)
    same = result.labels[:, None] == result.labels
    assert apart[same].mean() < 0.5 * apart[~same].mean()
    assert torch.equal(result.originals, project(z, labels, augment, classes=4, copies=3, seed=0).originals)


def test_draws_have_the_number_asked_for_and_leave_the_module_as_it_was():
    z, labels, augment = clouds()
    _, numbers = labels.unique(return_inverse=True)
    drawn = draw(z, numbers, augment, copies=4, seed=1)
    assert drawn.shape == (48, 4, 5)
    assert augment.copies == 2
    many = draw(z[:1], numbers[:1], augment, copies=20_000, seed=1)[0]
    torch.testing.assert_close(many.mean(0), z[0], atol=0.02, rtol=0)
    torch.testing.assert_close(many.var(0), 0.8 * augment.variance[0], rtol=0.05, atol=0)  # Eq. 17


def test_nearest_real_samples_as_by_hand():
    z, labels, augment = clouds()
    rows = torch.tensor([5, 40])
    result = synthetic_neighbors(z, labels, rows, augment, copies=3, nearest=4, seed=2)
    unit = z / z.norm(dim=1, keepdim=True)
    for position, row in enumerate(rows.tolist()):
        for copy in range(3):
            mine = result.z[position, copy] / result.z[position, copy].norm()
            order = sorted(range(len(z)), key=lambda other, mine=mine: -float(unit[other] @ mine))
            order = [other for other in order if other != row][:4]
            assert result.nearest[position, copy].tolist() == order
            assert result.right[position, copy].tolist() == [bool(labels[o] == labels[row]) for o in order]
    assert result.agreement() == (1.0, 1.0)
