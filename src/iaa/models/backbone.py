"""What an embedder needs to know of a network."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from iaa.models.embedder import Preprocessing
from iaa.models.weights import State


def _as_they_are(state: State) -> State:
    return state


@dataclass(frozen=True)
class Backbone:
    """A network without its classifier, and all that an ``Embedder`` and its weights need to know of it."""

    network: nn.Module
    features: int
    preprocessing: Preprocessing
    fetch: Callable[[], State] | None = None
    """Its published weights; ``None`` where there are none and it starts from scratch."""
    unused: tuple[str, ...] = ()
    """How the keys of published entries begin that belong to the classifier."""
    rename: Callable[[State], State] = _as_they_are
    """From the keys of published files to those of ``network``."""
