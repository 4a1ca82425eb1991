import pytest
import torch
from torch import nn

import tiny_datasets
from iaa.data.image_dataset import ImageDataset, transform
from iaa.embed import embed_batches, embed_images
from iaa.retrieval.shards import Shards


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


@pytest.mark.parametrize("channels_last", [True, False])
def test_images_come_in_the_memory_format_asked_for(channels_last):
    seen = []

    class Network(nn.Module):
        def forward(self, images):
            seen.append(images.is_contiguous(memory_format=torch.channels_last))
            return images.flatten(1)

    network = Network()
    network.channels_last = channels_last
    embed_batches(network, batches())
    assert seen == [channels_last] * 3


def test_nothing_to_embed_is_said():
    with pytest.raises(ValueError, match="no images to embed"):
        embed_batches(nn.Identity(), [])


def test_too_large_a_batch_is_said():
    class Greedy(nn.Module):
        def forward(self, images):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate …")

    with pytest.raises(ValueError, match="a batch of 3 images does not fit into the memory of cpu"):
        embed_batches(Greedy(), batches())


def test_embeddings_that_are_not_finite_name_their_image(tmp_path):
    paths = [tiny_datasets.image(tmp_path / f"{i}.png", seed=i) for i in range(4)]
    images = ImageDataset(paths, [0] * 4, transform(False, size=8, resize=8), cache=False)
    parts = Shards(tmp_path / "x.parts", {}, 4, batch_size=2)

    class Overflowing(nn.Module):
        def forward(self, batch):
            Overflowing.batches += 1
            return batch.flatten(1)[:, :2] / (Overflowing.batches - 2)

    Overflowing.batches = 0
    with pytest.raises(ValueError, match=r"embedding of .*2\.png is not finite: compute in fp32"):
        embed_images(Overflowing(), images, parts)
    assert parts.done == 2
    parts.release()
