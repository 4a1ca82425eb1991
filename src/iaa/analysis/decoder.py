"""Synthetics in pixel space (Fig. 15): a small decoder from embeddings back to a run's own images.

The paper maps back with a pretrained BigGAN. This decoder is trained on the given images alone, so it is
blurred where embeddings leave details open; ``explained`` measures it on held-out images.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from iaa.analysis.example_queries import from_different_classes
from iaa.analysis.synthetics import draw
from iaa.files import parse_json, read_tensors, write_tensors
from iaa.method.augment import IAA
from iaa.method.checks import check_whole

FORMAT = "iaa-decoded-1"
HELD_OUT = 0.1
"""Share of the images that the decoder is not trained on."""


class Decoder(nn.Module):
    """Embeddings to small images with values in [0, 1]; ``side`` is a multiple of 4."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, z: Float[Tensor, "n d"], side: int, *, width: int = 96) -> None:
        super().__init__()
        self.start, self.width = side // 4, width
        self.register_buffer("mean", z.mean(0))
        self.register_buffer("deviation", z.std(0, unbiased=False).clamp(min=1e-6))
        hidden, maps = 512, width * self.start**2
        self.spread = nn.Sequential(nn.Linear(z.shape[1], hidden), nn.GELU(), nn.Linear(hidden, maps))
        self.paint = nn.Sequential(  # small maps do most of the work, channels are shuffled into pixels
            nn.GELU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.PixelShuffle(2),
            nn.GELU(),
            nn.Conv2d(width // 4, width // 2, 3, padding=1),
            nn.PixelShuffle(2),
            nn.GELU(),
            nn.Conv2d(width // 8, 3, 3, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, z: Float[Tensor, "b d"]) -> Float[Tensor, "b 3 h w"]:
        """Images of un-normalised embeddings."""
        maps = self.spread((z - self.mean) / self.deviation)
        images: Tensor = self.paint(maps.unflatten(1, (self.width, self.start, self.start)))
        return images


@dataclass(frozen=True)
class Decoded:
    """Samples the decoder has not seen: their images, reconstructions, and decoded synthetics."""

    rows: Int64[Tensor, " s"]
    images: UInt8[Tensor, "s 3 h w"]
    reconstructions: UInt8[Tensor, "s 3 h w"]
    synthetics: UInt8[Tensor, "s m 3 h w"]
    seen: int
    """Images that the decoder learned from."""
    held_out: int
    explained: float
    """Share of the variance of held-out pixels that it explains: 1 is perfect, 0 the mean image."""
    epochs: int
    ids: Sequence[str] = ()
    names: Sequence[str] = ()
    """Ids and class names of the samples shown."""


def learn(
    z: Float[Tensor, "n d"],
    images: UInt8[Tensor, "n 3 h w"],
    *,
    epochs: int = 12,
    batch: int = 64,
    lr: float = 2e-3,
    seed: int = 0,
    tick: Callable[[float], None] = lambda done: None,
) -> Decoder:
    """Train a decoder by absolute error; the same seed gives the same decoder on one machine."""
    check_whole("epochs", epochs, least=1)
    if images.shape[2] % 4 or images.shape[2] != images.shape[3]:
        raise ValueError(f"images must be square with sides of a multiple of 4, got {tuple(images.shape)}")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        decoder = Decoder(z, images.shape[2])
    optimizer = torch.optim.Adam(decoder.parameters(), lr=lr)
    total = epochs * -(-len(z) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=total)
    generator = torch.Generator().manual_seed(seed)
    for step, rows in enumerate(_batches(len(z), batch, epochs, generator), 1):
        loss = F.l1_loss(decoder(z[rows]), images[rows].float() / 255)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        tick(step / total)
    return decoder.eval()


def decode(
    z: Float[Tensor, "n d"],
    numbers: Int64[Tensor, " n"],
    images: UInt8[Tensor, "n 3 h w"],
    augment: IAA,
    *,
    shown: int = 8,
    copies: int = 5,
    epochs: int = 12,
    seed: int = 0,
    tick: Callable[[float], None] = lambda done: None,
) -> Decoded:
    """Train a decoder on most of the images; decode others and synthetics drawn around them.

    ``numbers`` are the classes as ``augment`` counts them.
    """
    if len(z) < 10:
        raise ValueError(f"a decoder needs 10 images or more, got {len(z)}")
    z = z.float()
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))
    held, seen = order.split([max(1, int(HELD_OUT * len(z))), len(z) - max(1, int(HELD_OUT * len(z)))])
    decoder = learn(z[seen], images[seen], epochs=epochs, seed=seed, tick=tick)
    rows = from_different_classes(held, numbers, shown)
    synthetics = draw(z[rows], numbers[rows], augment, copies=copies, seed=seed)
    with torch.inference_mode():
        decoded = torch.cat([decoder(part) for part in z[held].split(256)])
        truth = images[held].float() / 255
        mean = images[seen].float().mean(0) / 255
        variance = (truth - mean).square().sum().clamp(min=1e-12)
        explained = 1 - float((decoded - truth).square().sum() / variance)
        own = decoder(z[rows])
        pixels = decoder(synthetics.flatten(0, 1)).unflatten(0, synthetics.shape[:2])
    shown_images = (images[rows], _bytes(own), _bytes(pixels))
    return Decoded(rows, *shown_images, len(seen), len(held), explained, epochs)


def save(result: Decoded, path: Path) -> None:
    """Write one ``.safetensors`` atomically; the header holds the numbers and names as JSON."""
    tensors = {name: getattr(result, name).contiguous() for name in TENSORS}
    fields = {name: getattr(result, name) for name in FIELDS}
    write_tensors(path, tensors, {"format": FORMAT, "decoded": json.dumps(fields)})


def load(path: Path) -> Decoded:
    """What ``save`` has written."""
    tensors, header = read_tensors(path)
    if header.get("format") != FORMAT or set(tensors) != set(TENSORS):
        raise ValueError(f"{path} does not hold decoded images: its header lacks format = {FORMAT!r}")
    fields: dict[str, Any] = {**tensors, **parse_json(header.get("decoded", ""), str(path), required=FIELDS)}
    return Decoded(**fields)


TENSORS = ("rows", "images", "reconstructions", "synthetics")
FIELDS = ("seen", "held_out", "explained", "epochs", "ids", "names")


def _batches(size: int, batch: int, epochs: int, generator: torch.Generator) -> Iterator[Tensor]:
    for _ in range(epochs):
        yield from torch.randperm(size, generator=generator).split(batch)


def _bytes(images: Tensor) -> Tensor:
    return (images.clamp(0, 1) * 255).round().to(torch.uint8)
