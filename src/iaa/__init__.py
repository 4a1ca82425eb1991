"""Deep metric learning with intra-class adaptive augmentation and neighbour correction."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iaa.retrieval.embeddings import Embeddings as Embeddings
    from iaa.retrieval.metrics import score as score

_LAZY: dict[str, str] = {
    "Embeddings": "iaa.retrieval.embeddings",
    "score": "iaa.retrieval.metrics",
}
"""Public name to the module that holds it; loaded on first use, so that ``import iaa`` stays light."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'iaa' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
