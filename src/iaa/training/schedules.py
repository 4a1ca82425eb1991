"""What changes over the epochs of a run: learning rates, strength, and when statistics are estimated."""

import math

from iaa.config import Augment, Optimizer
from iaa.method.augment import IAA


def rate_factor(options: Optimizer, epoch: float, epochs: int) -> float:
    """The factor on all learning rates at a time counted in epochs."""
    if epoch < options.warmup_epochs:
        return epoch / options.warmup_epochs
    if options.schedule == "steps":
        return options.drop_by ** sum(epoch >= drop for drop in options.drop_at)
    return (1 + math.cos(math.pi * epoch / epochs)) / 2 if options.schedule == "cosine" else 1.0


def strength(options: Augment, epoch: int, epochs: int) -> float:
    """The strength of an epoch (lambda, Eq. 17), which falls linearly by ``strength_decay``."""
    return options.strength * (1 - options.strength_decay * (epoch / max(1, epochs - 1)))


def estimates_before(options: Augment, augment: IAA, epoch: int) -> bool:
    """Whether statistics are estimated by a pass over the training set before this epoch."""
    since = epoch - options.start_epoch
    return options.refresh == "pass" and options.copies > 0 and since >= 0 and augment.due(since)


def streams_during(options: Augment, epoch: int) -> bool:
    """Whether statistics are updated from the batches of this epoch."""
    return options.refresh == "stream" and options.copies > 0 and epoch >= options.start_epoch
