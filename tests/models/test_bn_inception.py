import torch

import oracles_models
from iaa.models import build
from iaa.models.bn_inception import BNInception


def with_lively_statistics(network):
    """Fresh batch normalisation is nearly the identity; give every channel its own."""
    for key, value in network.state_dict().items():
        if "_bn." in key and value.is_floating_point():
            value.uniform_(0.5, 1.5)
    return network.eval()


def test_the_network_is_the_one_written_out():
    torch.manual_seed(0)
    network = with_lively_statistics(BNInception())
    images = torch.randn(1, 3, 96, 64)
    with torch.no_grad():
        maps = network(images)
        expected = oracles_models.bn_inception(network, images.flip(1))
    assert maps.shape == (1, 1024, 3, 2)
    torch.testing.assert_close(maps, expected, rtol=1e-3, atol=1e-4)


def test_its_first_layer_sees_what_caffe_saw():
    embedder = build("bn_inception", pretrained=False).eval()
    image = torch.randint(0, 256, (1, 3, 32, 32)).float()
    mean, std = (torch.tensor(embedder.preprocessing[key])[:, None, None] for key in ("mean", "std"))
    seen = []
    embedder.backbone.conv1_7x7_s2.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        embedder((image / 255 - mean) / std)
    red, green, blue = image[0]
    expected = torch.stack([blue - 104, green - 117, red - 128])[None]
    torch.testing.assert_close(seen[0], expected, rtol=0, atol=1e-3)
