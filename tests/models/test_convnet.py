import pytest
import torch

from iaa.models import build


@pytest.mark.parametrize("size", [32, 48, 64])
def test_small_images_of_any_size(size):
    embedder = build("convnet", dim=16).eval()
    assert embedder.backbone(torch.rand(2, 3, size, size)).shape == (2, 256, size // 16, size // 16)
    assert embedder(torch.rand(2, 3, size, size)).shape == (2, 16)


def test_it_is_small_and_starts_from_scratch():
    embedder = build("convnet")
    assert sum(p.numel() for p in embedder.parameters()) < 1_500_000
    assert embedder.loaded is None


def test_it_learns_to_tell_stripes_apart():
    torch.manual_seed(0)
    labels = torch.arange(32) % 2
    stripes = torch.where(torch.arange(32) % 4 < 2, 1.0, -1.0).expand(32, 3, 32, 32)
    images = torch.where(labels[:, None, None, None] == 0, stripes, stripes.transpose(2, 3))
    images = images + 0.5 * torch.randn(32, 3, 32, 32)
    embedder = build("convnet", dim=2)
    optimiser = torch.optim.Adam(embedder.parameter_groups(lr=1e-3))
    losses = []
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(embedder(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
