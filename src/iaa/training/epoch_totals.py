"""Sums over the steps of an epoch, for the log and for checkpoints in the middle of it."""

import time
from dataclasses import dataclass
from typing import Any


@dataclass
class EpochTotals:
    """Sums over the steps of an epoch, including those before an interruption."""

    steps: int = 0
    loss: float = 0.0
    images: int = 0
    seconds: float = 0.0
    """Up to the last step that was added."""
    statistics: float = 0.0
    """Seconds spent on class statistics."""

    def __post_init__(self) -> None:
        self._began = time.monotonic() - self.seconds

    def add(self, loss: float, images: int) -> None:
        """Add a step."""
        self.steps, self.loss, self.images = self.steps + 1, self.loss + loss, self.images + images
        self.seconds = time.monotonic() - self._began

    @property
    def speed(self) -> float:
        """Images per second, statistics included."""
        return self.images / max(self.seconds, 1e-9)

    def row(self) -> dict[str, Any]:
        """The row of the log for the whole epoch."""
        return {
            "loss": self.loss / self.steps,
            "images": self.images,
            "seconds": self.seconds,
            "statistics_seconds": self.statistics,
            "images_per_second": self.speed,
        }
