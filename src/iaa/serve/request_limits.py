"""How much a request may cost."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """All bounds of the server in one place."""

    upload_bytes: int = 20 * 2**20
    pixels: int = 50_000_000
    """Width times height of an uploaded image; a phone's 48-megapixel photo passes."""
    seconds: float = 30.0
    """From the first byte of a request to its answer."""
    in_flight: int = 64
    """Requests that are answered at one time; more are told to come back."""
    batch: int = 16
    """Images that go through the network together."""
    gather_seconds: float = 0.004
    """How long an image waits for company."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < math.inf or (value == 0 and name != "gather_seconds"):
                raise ValueError(f"{name} must be more than 0 and finite, got {value}")
