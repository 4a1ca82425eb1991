import pytest
import torch
from safetensors.torch import save_file

from iaa.models import build
from iaa.torchvision_compat import torchvision
from oracles_models import published

PARAMETERS = {"googlenet": 5_599_904, "resnet50": 23_508_032, "bn_inception": 10_270_240}
CLASSIFIER = {"googlenet": 1_025_000, "resnet50": 2_049_000, "bn_inception": 1_025_000}
WHOLE = {"googlenet": 6_624_904, "resnet50": 25_557_032, "bn_inception": 11_295_240}
FEATURES = {"googlenet": 1024, "resnet50": 2048, "bn_inception": 1024}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_and_features_are_the_known_ones(name):
    embedder = build(name, pretrained=False, dim=None).eval()
    assert sum(p.numel() for p in embedder.parameters()) == PARAMETERS[name] == WHOLE[name] - CLASSIFIER[name]
    with torch.no_grad():
        assert embedder(torch.rand(1, 3, 64, 64)).shape == (1, FEATURES[name]) == (1, embedder.dim)


@pytest.mark.parametrize(
    ("name", "counters"),
    [("googlenet", True), ("resnet50", True), ("resnet50", False), ("bn_inception", False)],
)
def test_published_files_fit_without_a_word(name, counters, tmp_path):
    state = published(name, counters=counters)
    torch.save(state, tmp_path / "published.pth")
    embedder = build(name, weights=tmp_path / "published.pth")
    own = embedder.backbone.state_dict()
    assert embedder.loaded.missing == embedder.loaded.unexpected == ()
    assert embedder.loaded.taken == sum(counters or not key.endswith("tracked") for key in own)
    assert all(torch.equal(own[key], state[key]) for key in own if key in state)


def test_the_oldest_bn_inception_files_fit_too(tmp_path):
    state = {key: value[None] if "_bn." in key else value for key, value in published("bn_inception").items()}
    save_file(state, tmp_path / "old.safetensors")
    embedder = build("bn_inception", weights=tmp_path / "old.safetensors")
    assert torch.equal(embedder.backbone.conv1_7x7_s2_bn.running_var, state["conv1_7x7_s2_bn.running_var"][0])


def test_googlenet_gets_the_input_that_torchvision_makes_for_it(tmp_path):
    """Their network takes the ImageNet normalisation and converts; ours gets the right one at once."""
    state = published("googlenet")
    torch.save(state, tmp_path / "googlenet.pth")
    ours = build("googlenet", weights=tmp_path / "googlenet.pth", dim=None).eval()
    theirs = torchvision().models.googlenet(
        weights=None, aux_logits=True, init_weights=False, transform_input=True
    )
    theirs.load_state_dict(state)
    theirs.eval().fc = torch.nn.Identity()
    images = torch.rand(2, 3, 64, 64)
    usual = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
    imagenet = (images - usual[0]) / usual[1]
    mean, std = (torch.tensor(ours.preprocessing[key])[:, None, None] for key in ("mean", "std"))
    with torch.no_grad():
        torch.testing.assert_close(ours((images - mean) / std), theirs(imagenet), rtol=1e-3, atol=1e-3)


def test_resnet50_gives_the_features_of_torchvision(tmp_path):
    state = published("resnet50")
    torch.save(state, tmp_path / "resnet50.pth")
    ours = build("resnet50", weights=tmp_path / "resnet50.pth", dim=None).eval()
    theirs = torchvision().models.resnet50(weights=None)
    theirs.load_state_dict(state)
    theirs.eval().fc = torch.nn.Identity()
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=1e-3, atol=1e-3)


def test_the_papers_backbones_squeeze_to_256_and_see_224():
    for name in PARAMETERS:
        preprocessing = build(name, pretrained=False).preprocessing
        assert (preprocessing["resize"], preprocessing["size"]) == (256, 224)
        assert (preprocessing["aspect"], preprocessing["interpolation"]) == ("squeeze", "bilinear")


def test_size_scales_the_resize_along():
    preprocessing = build("bn_inception", pretrained=False, size=112).preprocessing
    assert (preprocessing["size"], preprocessing["resize"]) == (112, 128)


def test_an_unknown_backbone_is_named_with_the_nearest():
    with pytest.raises(ValueError, match=r"got 'resnet51' \(did you mean 'resnet50'\?\)"):
        build("resnet51")


@pytest.mark.parametrize("size", [32, 48, 64])
def test_the_convnet_takes_small_images_of_any_size(size):
    embedder = build("convnet", dim=16).eval()
    assert embedder.backbone(torch.rand(2, 3, size, size)).shape == (2, 256, size // 16, size // 16)
    assert embedder(torch.rand(2, 3, size, size)).shape == (2, 16)


def test_the_convnet_is_small_and_starts_from_scratch():
    embedder = build("convnet")
    assert sum(p.numel() for p in embedder.parameters()) < 1_500_000
    assert embedder.loaded is None


def test_the_convnet_learns_to_tell_stripes_apart():
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
