"""What goes wrong in a training, said in words: no numbers, collapse, batches without positives."""

import logging
import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from iaa.config import Config
from iaa.losses import PAIRS

COLLAPSED = 0.99
"""Mean cosine similarity of a batch from which on its embeddings are as good as one."""

_log = logging.getLogger("iaa")


class NotFinite(ValueError):
    """The run cannot go on: a loss or an embedding is no number."""


class Health:
    """Looks at every step; tells each kind of trouble once."""

    def __init__(self, config: Config, *, tells: bool = True) -> None:
        self.config, self.tells = config, tells
        self.told: set[str] = set()

    def embeddings(self, z: Float[Tensor, "B D"], labels: Int[Tensor, "B"], epoch: int, step: int) -> None:
        """Stop at NaN or infinity; warn of a collapse and of batches in which no class comes twice."""
        if not bool(torch.isfinite(z).all()):
            raise NotFinite(f"{self._where(epoch, step)}: embeddings hold NaN or infinity; {self._cause()}")
        n = len(z)
        center = F.normalize(z.detach().float(), dim=1).mean(0)
        similarity = (n * float(center @ center) - 1) / max(1, n - 1)
        if n > 1 and similarity > COLLAPSED:
            self._tell(
                "collapse",
                f"{self._where(epoch, step)}: the embeddings have collapsed, their mean similarity is "
                f"{similarity:.3f}; a lower learning rate or another loss may help",
            )
        if self.config.loss in PAIRS and len(labels.unique()) == n:
            self._tell(
                "positives",
                f"{self._where(epoch, step)}: no class comes twice in this batch, so there are no positives "
                "to learn from; raise batch.per_class or train on classes of more samples",
            )

    def loss(self, value: float, epoch: int, step: int) -> None:
        """Stop at a loss that is no number."""
        if not math.isfinite(value):
            raise NotFinite(f"{self._where(epoch, step)}: the loss is {value}; {self._cause()}")

    def _cause(self) -> str:
        options = self.config.optimizer
        causes = [f"likely the learning rate ({options.lr:g}, head x{options.head_factor:g}) is too high"]
        if self.config.precision == "16":
            causes.append("or half precision overflowed: try --precision bf16")
        if self.config.network.weights:
            causes.append(f"or {self.config.network.weights} holds such numbers")
        return ", ".join(causes)

    def _where(self, epoch: int, step: int) -> str:
        return f"epoch {epoch}, step {step}"

    def _tell(self, kind: str, text: str) -> None:
        if self.tells and kind not in self.told:
            self.told.add(kind)
            _log.warning(text)
