import pytest
import torch
import torch.nn.functional as F

import iaa
import oracles_retrieval as oracles
from iaa.retrieval.query_expansion import expand


@pytest.mark.parametrize(("neighbors", "alpha"), [(1, 0.0), (3, 1.0), (4, 3.0)])
def test_expansion_is_the_loops(neighbors, alpha):
    query, gallery = torch.randn(7, 5), torch.randn(20, 5)
    expected = [oracles.expanded(q, gallery.tolist(), neighbors, alpha) for q in query.tolist()]
    found = expand(query, gallery, neighbors=neighbors, alpha=alpha)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-5)
    expected = [
        oracles.expanded(g, gallery.tolist(), neighbors, alpha, own=i) for i, g in enumerate(gallery.tolist())
    ]
    found = expand(gallery, neighbors=neighbors, alpha=alpha)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_no_neighbours_leave_unit_vectors():
    z = torch.randn(6, 4)
    torch.testing.assert_close(expand(z, neighbors=0), F.normalize(z, dim=1))
    torch.testing.assert_close(expand(z[:1], neighbors=3), F.normalize(z[:1], dim=1))


def test_more_neighbours_than_there_are():
    z = torch.randn(4, 3)
    torch.testing.assert_close(expand(z, neighbors=9), expand(z, neighbors=3))


def test_augmenting_the_database_tightens_classes():
    labels = torch.arange(200) % 20
    z = torch.randn(20, 16)[labels] + 0.9 * torch.randn(200, 16)
    assert iaa.score(expand(z), labels)["MAP@R"] > iaa.score(z, labels)["MAP@R"] + 3


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="neighbors must be at least 0, got -1"):
        expand(torch.randn(3, 2), neighbors=-1)
    with pytest.raises(ValueError, match="gallery must be finite"):
        expand(torch.randn(3, 2), torch.full((2, 2), float("nan")))
