"""A network as one ONNX file: pixels or vectors in, embeddings out, preprocessing in its metadata."""

import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from iaa.errors import need
from iaa.models import Preprocessing

OPSET = 18
_NOISY = ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")


class FromPixels(nn.Module):
    """Takes bytes as image libraries give them; normalising is part of the graph."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", 255 * torch.tensor(preprocessing["mean"]).view(3, 1, 1))
        self.register_buffer("std", 255 * torch.tensor(preprocessing["std"]).view(3, 1, 1))

    def forward(self, pixels: UInt8[Tensor, "batch height width 3"]) -> Float[Tensor, "batch dim"]:
        """Un-normalised embeddings of RGB images."""
        images = pixels.permute(0, 3, 1, 2).float()
        embeddings: Tensor = self.network((images - self.mean) / self.std)
        return embeddings


@dataclass(frozen=True)
class Exportable:
    """A network and what it takes: images, or without preprocessing vectors of ``features`` numbers."""

    network: nn.Module
    preprocessing: Preprocessing | None
    features: int | None = None

    @property
    def input(self) -> str:
        """What goes in: ``pixels`` or ``vectors``."""
        return "vectors" if self.preprocessing is None else "pixels"

    def input_of_network(self) -> dict[str, Any]:
        """What the network itself takes: normalised floats, as the image transform makes them."""
        return {"features": self.features} if self.preprocessing is None else dict(self.preprocessing)

    def input_of_file(self) -> dict[str, Any]:
        """What an ONNX file takes: with an image library, enough to prepare an image."""
        own = self.preprocessing
        if own is None:
            return {"input": self.input, "type": "float32", "features": self.features}
        return {
            "input": self.input,
            "type": "uint8",
            "layout": "batch, height, width, RGB",
            "upright": "turned as the EXIF orientation says",
            "background": "white",
            "jpeg_at_least": 2 * own["resize"],
            "resize": own["resize"],
            "aspect": own["aspect"],
            "interpolation": own["interpolation"],
            "antialias": True,
            "crop": "center",
            "size": own["size"],
            "mean": list(own["mean"]),
            "std": list(own["std"]),
            "normalised": "inside the graph",
        }

    def example(self, size: int) -> Tensor:
        """Random inputs of the right shape, always the same."""
        generator = torch.Generator().manual_seed(0)
        if self.preprocessing is None:
            return torch.randn(size, self.features or 0, generator=generator)
        side = self.preprocessing["size"]
        return torch.randint(256, (size, side, side, 3), dtype=torch.uint8, generator=generator)


def write_graph(what: Exportable, path: Path, *, about: Mapping[str, Any]) -> None:
    """Write a network as it is used (evaluation mode, any batch) with ``about`` as JSON in its metadata."""
    for package in ("onnx", "onnxscript"):
        need(package, extra="export")
    graph = what.network
    if what.preprocessing is not None:
        graph = FromPixels(graph, what.preprocessing)
    try:
        with _silence():
            program = torch.onnx.export(
                graph.eval().cpu(),
                (what.example(2),),
                input_names=[what.input],
                output_names=["embedding"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        cause = str(error.__cause__ or error).strip().splitlines()[0]
        raise ValueError(f"torch cannot export this network to ONNX: {cause}") from error
    assert program is not None
    model: Any = program.model
    for node in model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces with the paths of this machine
    model.producer_name = "iaa"
    model.metadata_props.clear()
    model.metadata_props["preprocessing"] = json.dumps(what.input_of_file())
    model.metadata_props["about"] = json.dumps(dict(about))
    program.save(path, external_data=False)


@contextmanager
def _silence() -> Iterator[None]:
    """Hide what the exporter prints, logs and warns about its internals; errors still come through."""
    levels = {name: logging.getLogger(name).level for name in _NOISY}
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        for name in _NOISY:
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
