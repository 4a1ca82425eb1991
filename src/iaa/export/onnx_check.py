"""Compare an exported file with its network on real images, in batches of several sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from iaa.data.image_io import UnreadableImage, read
from iaa.data.transforms import as_tensor, transform
from iaa.errors import need
from iaa.export.onnx_graph import Exportable

BATCHES = (1, 3, 8)
TOLERANCE = 1e-4
"""Largest difference allowed between two embeddings, relative to their norm; rounding gives 1e-6."""


@dataclass(frozen=True)
class Agreement:
    """How much onnxruntime and PyTorch differ on the same inputs."""

    difference: float
    """The largest of any number of any embedding."""
    share: float
    """The largest distance between two embeddings, as a share of their length."""
    real: int
    """How many of the inputs were the run's own; the others are random."""
    inputs: int

    def __str__(self) -> str:
        kinds = {"of its own images": self.real, "random inputs": self.inputs - self.real}
        what = " and ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
        batches = ", ".join(map(str, BATCHES[:-1])) + f" and {BATCHES[-1]}"
        return (
            f"largest difference {self.difference:.1e} ({self.share:.1e} of an embedding's length), "
            f"on {what}, in batches of {batches}"
        )


def samples(what: Exportable, paths: Sequence[str] = ()) -> tuple[Tensor, int]:
    """As many inputs as the largest batch takes, and how many are real images; random ones fill up."""
    inputs = what.example(BATCHES[-1])
    if what.preprocessing is None or not paths:
        return inputs, 0
    step, real = transform(False, **what.preprocessing), 0
    spread = np.linspace(0, len(paths) - 1, 2 * len(inputs)).round().astype(int)
    for path in dict.fromkeys(paths[at] for at in spread):
        if real == len(inputs):
            break
        try:
            image = read(path, at_least=step.at_least)
        except UnreadableImage:  # moved since, or a box of a table: others will do
            continue
        inputs[real] = step.prepare(as_tensor(np.array(image))).permute(1, 2, 0)
        real += 1
    return inputs, real


def agreement(file: Path, what: Exportable, inputs: Tensor, real: int) -> Agreement:
    """Run the file with onnxruntime and the network with PyTorch; refuse a file that differs."""
    session = open_session(file)
    batches = [inputs[:size] for size in BATCHES]
    pairs = [(_reference(what, batch), _run(session, what, batch)) for batch in batches]
    for ours, theirs in pairs:
        if theirs.shape != ours.shape:
            raise ValueError(
                f"the exported file gives shape {tuple(theirs.shape)}, PyTorch {tuple(ours.shape)}: "
                "nothing was written"
            )
    ours, theirs = (torch.cat(column) for column in zip(*pairs, strict=True))
    apart = (ours - theirs).norm(dim=1) / ours.norm(dim=1).clamp(min=1e-12)
    result = Agreement(float((ours - theirs).abs().max()), float(apart.max()), real, len(inputs))
    if not result.share <= TOLERANCE:  # also for NaN
        raise ValueError(
            f"the exported file and PyTorch differ by {result.share:.1e} of an embedding's length "
            f"(at most {TOLERANCE:.0e} is allowed): nothing was written"
        )
    return result


def open_session(file: Path) -> Any:
    """onnxruntime on the CPU, without its notices."""
    runtime = need("onnxruntime", extra="export")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    return runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _reference(what: Exportable, batch: Tensor) -> Tensor:
    """The embedding by the run's own transform and network."""
    if what.preprocessing is not None:
        batch = transform(False, **what.preprocessing).finish(batch.permute(0, 3, 1, 2))
    with torch.inference_mode():
        embeddings: Tensor = what.network.eval()(batch)
    return embeddings


def _run(session: Any, what: Exportable, batch: Tensor) -> Tensor:
    (embeddings,) = session.run(["embedding"], {what.input: batch.numpy()})
    return torch.from_numpy(embeddings)
