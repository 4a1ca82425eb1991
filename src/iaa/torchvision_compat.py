"""torchvision, importable next to any torch: its CUDA wheel fails next to a CPU torch unless helped."""

import importlib
import sys
from types import ModuleType

from iaa.errors import need


def torchvision() -> ModuleType:
    """The torchvision package, with models and transforms working even where its binary part cannot load.

    Without that part the import stops at "operator torchvision::nms does not exist"; declaring the schemas
    of the two operators is enough for everything that does not detect boxes. Call it before importing timm.
    """
    try:
        return need("torchvision", extra="images")
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
    import torch

    for operator in ("nms", "qnms"):
        schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        torch.library.define(f"torchvision::{operator}", schema)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # what the failed import left half-made
    return importlib.import_module("torchvision")
