import pytest
import torch
from torch import nn

from iaa.extraction import embed_batches


def batches() -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    rows = torch.arange(7)
    return [(torch.randn(len(r), 3, 4, 4), r % 2, r) for r in rows.split(3)]


def test_embeddings_come_in_order_and_the_model_stays_as_it_was():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(48, 5)).train()
    given, told = batches(), []
    z, labels, rows = embed_batches(model, given, on_batch=told.append)
    assert model.training
    assert rows.tolist() == list(range(7))
    assert labels.tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert told == [3, 3, 1]
    torch.testing.assert_close(z, model.eval()(torch.cat([images for images, _, _ in given])).detach())


def test_mixed_precision_ends_in_float32():
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    z, _, _ = embed_batches(model, batches(), precision=torch.bfloat16)
    assert z.dtype == torch.float32


def test_nothing_to_embed_is_said():
    with pytest.raises(ValueError, match="no pictures to embed"):
        embed_batches(nn.Identity(), [])
