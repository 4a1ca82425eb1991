"""How much a request may cost."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Every limit of the server."""

    upload_bytes: int = 20 * 2**20
    pixels: int = 25_000_000
    """Pixels to decode; a JPEG counts up to four times less, because it is reduced while it is decoded."""
    seconds: float = 30.0
    """From the first byte of a request to its response."""
    decode_seconds: float = 10.0
    """After which the decoding of an upload is abandoned."""
    in_flight: int = 64
    """Requests that are answered at the same time; others get 503."""
    batch: int = 16
    """Images that go through the network together."""
    gather_seconds: float = 0.004
    """How long an image waits for others to share its batch."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < math.inf or (value == 0 and name != "gather_seconds"):
                raise ValueError(f"{name} must be more than 0 and finite, got {value}")
