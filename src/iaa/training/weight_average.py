"""An exponential moving average of a network's weights, which scores better than the last step's."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from iaa.method.checks import check_number


class WeightAverage:
    """The average of the weights after every ``update``; its memory is about ``1 / (1 - decay)`` steps.

    The first steps forget faster, at ``(1 + n) / (10 + n)``, so that a short run is not held back by its
    start. Weights that do not learn and buffers are the network's own.
    """

    def __init__(self, network: nn.Module, *, decay: float = 0.99) -> None:
        check_number("decay", decay, least=0, most=1)
        self.decay, self.steps = decay, 0
        self.average = {name: weight.detach().clone() for name, weight in _learning(network)}

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Add the weights as they are now, once after every step of the optimiser."""
        self.steps += 1
        keep = min(self.decay, (1 + self.steps) / (10 + self.steps))
        weights = dict(_learning(network))
        if weights.keys() != self.average.keys():
            changed = sorted(weights.keys() ^ self.average.keys())
            raise ValueError(f"the network must learn the same weights as before; {changed[0]} differs")
        torch._foreach_lerp_(list(self.average.values()), [weights[name] for name in self.average], 1 - keep)

    @contextmanager
    def applied(self, network: nn.Module) -> Iterator[nn.Module]:
        """The network with averaged weights; afterwards it has its own again, to the bit."""
        own = {name: weight.detach().clone() for name, weight in _learning(network)}
        self.copy_to(network)
        try:
            yield network
        finally:
            _copy(own, network)

    def copy_to(self, network: nn.Module) -> None:
        """Put the averaged weights into the network for good."""
        _copy(self.average, network)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"steps": self.steps, "average": self.average}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        for name, weight in self.average.items():
            weight.copy_(state["average"][name])
        self.steps = state["steps"]


def _learning(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return ((name, weight) for name, weight in network.named_parameters() if weight.requires_grad)


@torch.no_grad()
def _copy(weights: dict[str, Tensor], network: nn.Module) -> None:
    for name, weight in network.named_parameters():
        if name in weights:
            weight.copy_(weights[name])
