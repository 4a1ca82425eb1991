"""``iaa.load``: a run, or the network behind an embeddings file, ready to embed what it has never seen."""

import functools
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from iaa.config import Config, load_config
from iaa.data.image_dataset import Batch, ImageDataset, Transform, loader, transform
from iaa.data.image_io import UnreadableImage, as_rgb, read
from iaa.data.transforms import as_tensor
from iaa.embed import embed_batches, resolve_device
from iaa.model_origin import embedder_of, network_behind, projection_of, run_around
from iaa.models import Embedder, Preprocessing
from iaa.models.vector_head import Projection
from iaa.provenance import weights_hash
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.formats import READERS

SEVERAL = 512
"""Paths from which on worker processes read them."""


@dataclass(frozen=True, eq=False)
class Model:
    """A trained network and how it wants its images; what it embeds is not normalised."""

    path: Path
    """The run directory or the embeddings file it was loaded from."""
    config: Config | None
    """That of the run; None for the network behind an embeddings file."""
    dim: int
    """Numbers of an embedding."""
    network: Embedder | None
    """From images to embeddings; None where only vectors can be embedded."""
    head: Projection | None
    """From vectors to embeddings, for a run on vectors."""
    preprocessing: Preprocessing | None
    device: torch.device
    no_images: str = ""
    """Why images cannot be embedded; empty if they can."""

    def __repr__(self) -> str:
        """On one line: what it is, not every layer of it."""
        kind = type(self.network if self.network is not None else self.head).__name__
        name = self.config.model if self.config is not None and self.network is not None else kind
        return f"Model({str(self.path)!r}, {name}, dim={self.dim}, device={str(self.device)!r})"

    @property
    def folder(self) -> Path:
        """The run directory, or the folder of the embeddings file."""
        return self.path if self.path.is_dir() else self.path.parent

    @functools.cached_property
    def weights(self) -> str:
        """SHA-256 of the weights, as `iaa embed` writes it into its files."""
        module = self.network if self.network is not None else self.head
        return weights_hash(module if module is not None else nn.Identity())

    @functools.cached_property
    def makers(self) -> set[str]:
        """Hashes that may stand in files of its embeddings: its own, and that of its head on vectors."""
        return {self.weights} if self.head is None else {self.weights, weights_hash(self.head)}

    @property
    def pool(self) -> str | None:
        """How its last maps become features; None where only vectors can be embedded."""
        return None if self.network is None else self.network.pool

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """What its embeddings depend on: two models with the same identity embed alike."""
        return {"weights_sha256": self.weights, "dim": self.dim, "preprocessing": _plain(self)}

    def embed(
        self,
        inputs: Any,
        *,
        batch_size: int = 64,
        workers: int | None = None,
        on_batch: Callable[[int], None] = lambda done: None,
    ) -> Float[Tensor, "n d"]:
        """Embeddings of paths, PIL images, encoded images (bytes) or uint8 arrays (H, W, 3), in a list.

        A run on vectors takes those: floats (N, D). An image that cannot be read raises
        ``UnreadableImage``, which names it.
        """
        _check_batch(batch_size)
        vectors = _as_vectors(inputs)
        if vectors is not None:
            return self._embed_vectors(vectors, on_batch)
        z, _, bad = self.embed_readable(
            _as_list(inputs), batch_size=batch_size, workers=workers, on_batch=on_batch
        )
        if bad:
            raise next(iter(bad.values()))
        return z

    def embed_readable(
        self,
        images: Sequence[Any],
        *,
        batch_size: int = 64,
        workers: int | None = None,
        on_batch: Callable[[int], None] = lambda done: None,
    ) -> tuple[Float[Tensor, "n d"], list[int], dict[int, UnreadableImage]]:
        """Embeddings of all images that can be read, their positions, and what is wrong with the others."""
        _check_batch(batch_size)
        if self.network is None or self.preprocessing is None:
            raise ValueError(f"{self.path} embeds vectors, not images: {self.no_images}")
        if not len(images):
            raise ValueError("there are no images to embed")
        step = transform(False, **self.preprocessing)
        bad: dict[int, UnreadableImage] = {}
        batches: Any
        if len(images) >= SEVERAL and all(isinstance(one, str | Path) for one in images):
            paths = [str(path) for path in images]
            found = ImageDataset(paths, [0] * len(paths), step, cache=False, on_bad_image="skip", check=False)
            batches = loader(found, batch_size=batch_size, workers=workers)
        else:
            found = None
            batches = _batches(images, step, batch_size, bad)
        parts = list(_each(self.network, batches, self.device, on_batch))
        if found is not None:
            reasons = {error.path: error for error in found.bad}
            bad = {row: reasons[path] for row, path in enumerate(found.paths) if path in reasons}
        z = torch.cat([part for part, _ in parts]) if parts else torch.empty(0, self.dim)
        rows = [row for _, part in parts for row in part.tolist()]
        return z, rows, bad

    def _embed_vectors(self, vectors: Tensor, on_batch: Callable[[int], None]) -> Tensor:
        if self.head is None:
            raise ValueError(f"{self.path} embeds images, got floating numbers of shape {_shape(vectors)}")
        if vectors.ndim != 2 or vectors.shape[1] != self.head.features:
            raise ValueError(
                f"{self.path} embeds vectors of {self.head.features} numbers, got shape {_shape(vectors)}"
            )
        rows = torch.arange(len(vectors))
        batches = ((vectors[at].float(), at, at) for at in rows.split(4096))
        return embed_batches(self.head, batches, device=self.device, on_batch=on_batch)[0]


def load(path: str | Path, *, device: str = "auto") -> Model:
    """The model of a finished run, or the network that made an embeddings file; nothing in them is executed.

    A run that trained a head on vectors embeds vectors; it embeds images as well if the embeddings file it
    was trained on says which network it came from, and that network can still be had.
    """
    path, where = Path(path).expanduser(), resolve_device(device)
    if path.is_file():
        run = run_around(path)
        try:
            if path.suffix not in READERS:
                raise ValueError(f"neither a run directory nor an embeddings file ({', '.join(READERS)})")
            network = network_behind(Embeddings.load(path).meta).to(where).eval()
        except ValueError as error:
            text = str(error) if str(path) in str(error) else f"{path}: {error}"
            hint = "" if run is None else f" (name the run directory itself: {run})"
            raise ValueError(text + hint) from error
        return Model(path, None, network.dim, network, None, network.preprocessing, where)
    if not path.is_dir():
        raise FileNotFoundError(f"there is no run and no embeddings file at {path}")
    try:
        config = load_config(path)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path / 'config.json'} is no text: {error}") from error
    if not config.data.startswith("embeddings:"):
        network = embedder_of(path, config).to(where).eval()
        return Model(path, config, network.dim, network, None, network.preprocessing, where)
    head = projection_of(path, config).to(where).eval()
    file = Path(config.data.partition(":")[2]).expanduser()
    try:
        behind = network_behind(Embeddings.load(file).meta)
        if behind.dim != head.features:
            raise ValueError(f"its vectors have {behind.dim} numbers, the head takes {head.features}")
    except (ValueError, OSError, ImportError) as error:
        text = str(error)
        reason = text if str(file) in text else f"{file}: {text}"
        return Model(path, config, head.dim, None, head, None, where, reason)
    behind.head, behind.dim = nn.Sequential(behind.head, head), head.dim
    return Model(path, config, head.dim, behind.to(where).eval(), head, behind.preprocessing, where)


def _check_batch(size: int) -> None:
    if size < 1:
        raise ValueError(f"batch_size must be 1 or more, got {size}")


def _each(
    network: nn.Module, batches: Any, device: torch.device, on_batch: Callable[[int], None]
) -> Iterator[tuple[Tensor, Tensor]]:
    for batch in batches:
        z, _, rows = embed_batches(network, [batch], device=device, on_batch=on_batch)
        yield z, rows


def _batches(
    images: Sequence[Any], step: Transform, batch_size: int, bad: dict[int, UnreadableImage]
) -> Iterator[Batch]:
    for start in range(0, len(images), batch_size):
        good: list[Tensor] = []
        rows: list[int] = []
        for row in range(start, min(start + batch_size, len(images))):
            try:
                good.append(_prepared(images[row], step))
                rows.append(row)
            except UnreadableImage as error:
                bad[row] = error
        if rows:
            at = torch.tensor(rows)
            yield Batch(step.finish(torch.stack(good)), torch.zeros_like(at), at)


def _prepared(given: Any, step: Transform) -> Tensor:
    """One image, whatever it came as, before it becomes floats."""
    if isinstance(given, str | Path):
        image = read(str(given), at_least=step.at_least)
    elif isinstance(given, bytes):
        image = read(io.BytesIO(given), at_least=step.at_least)
    elif hasattr(given, "getexif"):
        image = as_rgb(given)
    else:
        pixels = np.asarray(given)
        if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,), (4,)):
            raise ValueError(
                f"an array must be an image of uint8 (height, width, 3), got {pixels.dtype} {pixels.shape}"
            )
        if not pixels.size:
            raise ValueError(f"an array must be an image of one pixel or more, got {pixels.shape}")
        from PIL import Image

        image = as_rgb(Image.fromarray(pixels))
    return step.vary(step.prepare(as_tensor(np.array(image))), 0)


def _as_list(inputs: Any) -> list[Any]:
    """One image is a list of one; an array of four dimensions is several."""
    alone = isinstance(inputs, str | Path | bytes) or hasattr(inputs, "getexif")
    return [inputs] if alone or getattr(inputs, "ndim", 4) < 4 else list(inputs)


def _as_vectors(inputs: Any) -> Tensor | None:
    """Floating numbers, as one array or as a list of rows; None for anything else."""
    if isinstance(inputs, list | tuple) and inputs and getattr(inputs[0], "ndim", 0) == 1:
        return torch.stack([torch.as_tensor(row) for row in inputs])
    if isinstance(inputs, Tensor | np.ndarray):
        tensor = torch.as_tensor(inputs)
        return tensor if tensor.is_floating_point() else None
    return None


def _plain(model: Model) -> dict[str, Any] | None:
    given = model.preprocessing
    return None if given is None else {k: list(v) if isinstance(v, tuple) else v for k, v in given.items()}


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
