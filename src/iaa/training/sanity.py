"""What can go wrong in training: NaN or infinity, collapse, batches without positives."""

import logging
import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from iaa.config import Config
from iaa.losses import PAIRS

COLLAPSED = 0.99
"""Mean cosine similarity within a batch above which its embeddings have collapsed."""

_log = logging.getLogger("iaa")


class NotFinite(ValueError):
    """The run cannot continue: a loss or an embedding is NaN or infinite."""


class Sanity:
    """Checks every step; warns once of each kind of problem."""

    def __init__(self, config: Config, *, warns: bool = True) -> None:
        self.config, self.warns = config, warns
        self._warned: set[str] = set()

    def check_embeddings(
        self, z: Float[Tensor, "B D"], labels: Int[Tensor, "B"], epoch: int, step: int
    ) -> None:
        """Stop at NaN or infinity; warn of a collapse and of batches in which no class occurs twice."""
        if not bool(torch.isfinite(z).all()):
            raise NotFinite(
                f"{self._where(epoch, step)}: embeddings contain NaN or infinity; {self._cause()}"
            )
        n = len(z)
        center = F.normalize(z.detach().float(), dim=1).mean(0)
        similarity = (n * float(center @ center) - 1) / max(1, n - 1)
        if n > 1 and similarity > COLLAPSED:
            self._warn(
                "collapse",
                f"{self._where(epoch, step)}: the embeddings have collapsed, their mean similarity is "
                f"{similarity:.3f}; a lower learning rate or another loss may help",
            )
        if self.config.loss in PAIRS and len(labels.unique()) == n:
            self._warn(
                "positives",
                f"{self._where(epoch, step)}: no class occurs twice in this batch, so there are no positives "
                "to learn from; raise batch.per_class or train on classes of more samples",
            )

    def check_loss(self, value: float, epoch: int, step: int) -> None:
        """Stop at a loss that is NaN or infinite."""
        if not math.isfinite(value):
            raise NotFinite(f"{self._where(epoch, step)}: the loss is {value}; {self._cause()}")

    def _cause(self) -> str:
        options = self.config.optimizer
        causes = [f"likely the learning rate ({options.lr:g}, head x{options.head_factor:g}) is too high"]
        if self.config.precision == "fp16":
            causes.append("or half precision overflowed: try --precision bf16")
        if self.config.network.weights:
            causes.append(f"or {self.config.network.weights} holds such values")
        return ", ".join(causes)

    def _where(self, epoch: int, step: int) -> str:
        return f"epoch {epoch}, step {step}"

    def _warn(self, kind: str, text: str) -> None:
        if self.warns and kind not in self._warned:
            self._warned.add(kind)
            _log.warning(text)
