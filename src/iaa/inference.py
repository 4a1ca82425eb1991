"""``iaa.load``: the network of a run or behind an embeddings file, ready to embed new images."""

import functools
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from iaa import models
from iaa.config import Config
from iaa.data.image_dataset import ImageDataset, loader, transform
from iaa.data.image_io import UnreadableImage
from iaa.embed import PRECISIONS, embed_batches, resolve_device
from iaa.errors import unknown
from iaa.hub import PREFIX, download, parse_repo
from iaa.image_inputs import IMAGES, as_images, as_vectors, batches_of
from iaa.models import Embedder, Preprocessing
from iaa.models.heads import VectorHead
from iaa.progress import counting
from iaa.provenance import weights_hash
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.formats import READERS
from iaa.runs import Run

MANY = 512
"""Number of paths from which worker processes read them."""


@dataclass(frozen=True, eq=False)
class Model:
    """A trained network with its preprocessing; its embeddings are not normalised."""

    path: Path
    """The run directory or the embeddings file it was loaded from."""
    config: Config | None
    """Configuration of the run; None for the network behind an embeddings file."""
    dim: int
    """Dimensions of an embedding."""
    network: Embedder | None
    """From images to embeddings; None where only vectors can be embedded."""
    head: VectorHead | None
    """From vectors to embeddings, for a run on vectors."""
    preprocessing: Preprocessing | None
    device: torch.device
    no_images: str = ""
    """Why it cannot embed images; empty if it can."""
    precision: str = "fp32"
    """What the network computes in: fp32, bf16 or fp16; embeddings are always fp32."""

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
        """Hashes that files of its embeddings may hold: its own, and that of its head on vectors."""
        return {self.weights} if self.head is None else {self.weights, weights_hash(self.head)}

    @property
    def pool(self) -> str | None:
        """How its last maps become features; None where only vectors can be embedded."""
        return None if self.network is None else self.network.pool

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """What its embeddings depend on: two models with the same identity embed alike."""
        flip = {"flip": True} if self.network is not None and self.network.flip else {}
        return {"weights_sha256": self.weights, "dim": self.dim, "preprocessing": _plain(self)} | flip

    def embed(
        self,
        inputs: Any,
        *,
        batch_size: int = 64,
        normalize: bool = False,
        progress: bool = False,
        workers: int | None = None,
    ) -> Float[Tensor, "n d"]:
        """Embeddings of paths, PIL images, encoded images (bytes) or uint8 arrays (H, W, 3), in a list.

        A run on vectors takes those: floats (N, D). An image that cannot be read raises
        ``UnreadableImage``, which names it.

        Args:
            inputs: the images, one or several.
            batch_size: images at once.
            normalize: to length 1, so that a dot product is the cosine similarity.
            progress: show a bar, in a terminal.
            workers: processes that read images, for many paths; the free cores if None.
        """
        _check_batch(batch_size)
        vectors = as_vectors(inputs)
        images = as_images(inputs) if vectors is None else []
        total = len(images) if vectors is None else len(vectors)
        with counting(total, rate="images/s" if vectors is None else "vectors/s", quiet=not progress) as bar:
            if vectors is not None:
                z = self._embed_vectors(vectors, bar.advance)
            else:
                z, _, bad = self.embed_readable(
                    images, batch_size=batch_size, workers=workers, on_batch=bar.advance
                )
                if bad:
                    raise next(iter(bad.values()))
        return F.normalize(z, dim=1) if normalize else z

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
        unreadable: dict[int, UnreadableImage] = {}
        files: ImageDataset | None = None
        batches: Any
        if len(images) >= MANY and all(isinstance(image, str | Path) for image in images):
            paths = [str(path) for path in images]
            files = ImageDataset(paths, [0] * len(paths), step, cache=False, on_bad_image="skip", check=False)
            batches = loader(files, batch_size=batch_size, workers=workers)
        else:
            batches = batches_of(images, step, batch_size, unreadable)
        parts = list(_each(self, batches, on_batch))
        if files is not None:
            errors = {error.path: error for error in files.bad}
            unreadable = {row: errors[path] for row, path in enumerate(files.paths) if path in errors}
        z = torch.cat([part for part, _ in parts]) if parts else torch.empty(0, self.dim)
        rows = [row for _, part in parts for row in part.tolist()]
        return z, rows, unreadable

    def push_to_hub(
        self,
        repo: str,
        *,
        private: bool = False,
        token: str | None = None,
        message: str = "Upload an iaa model",
    ) -> str:
        """Upload weights, configuration, scores and model card to the Hugging Face hub; the commit's URL.

        Others open it with ``iaa.load("hf:OWNER/NAME")``. Paths of this machine are left out.

        Args:
            repo: ``OWNER/NAME``, or ``OWNER/NAME@BRANCH``; created if it is not there.
            private: whether a new repository can be seen by its owner alone.
            token: a token that may write; the one of ``hf auth login`` if None.
            message: of the commit.
        """
        from iaa.export.export_run import publish

        return publish(self, repo, private=private, token=token, message=message)

    def _embed_vectors(self, vectors: Tensor, on_batch: Callable[[int], None]) -> Tensor:
        if self.head is None:
            raise ValueError(
                f"{self.path} embeds images ({IMAGES}), got floating numbers of shape {_shape(vectors)}"
            )
        if vectors.ndim != 2 or vectors.shape[1] != self.head.features:
            raise ValueError(
                f"{self.path} embeds vectors of {self.head.features} numbers, got shape {_shape(vectors)}"
            )
        rows = torch.arange(len(vectors))
        batches = ((vectors[at].float(), at, at) for at in rows.split(4096))
        return embed_batches(self.head, batches, device=self.device, on_batch=on_batch)[0]


def load(
    path: str | os.PathLike[str], *, device: str = "auto", precision: str = "fp32", flip: bool = False
) -> Model:
    """The model of a finished run, of an embeddings file or of ``hf:OWNER/NAME``; no code in it is run.

    ``hf:OWNER/NAME@REVISION`` is a model on the Hugging Face hub, downloaded once into its cache.

    A run that trained a head on vectors embeds vectors. It embeds images as well if its embeddings file says
    which network made the vectors, and the weights of that network are still available. ``precision`` is what
    the network computes in: fp32, bf16 or fp16. With ``flip`` every image is embedded as it is and mirrored,
    and the mean counts: twice the time. A file made that way is embedded that way without asking.
    """
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    chosen = resolve_device(device)
    name = os.fspath(path)
    place = download(parse_repo(name)) if name.startswith(PREFIX) else Path(name).expanduser()
    model = replace(_load(place, chosen), precision=precision)
    if flip:
        if model.network is None:
            raise ValueError(f"{path} embeds vectors, which cannot be mirrored: leave flip out")
        model.network.flip = True
    return model


def _load(path: Path, chosen: torch.device) -> Model:
    if path.is_file():
        return _behind_file(path, chosen)
    if not path.is_dir():
        raise FileNotFoundError(f"there is no run and no embeddings file at {path}")
    run = Run(path)
    network = run.network().to(chosen)
    if isinstance(network, Embedder):
        return Model(path, run.config, network.dim, network, None, network.preprocessing, chosen)
    head, file = network, cast(Path, run.config.vectors_file)
    try:
        images = network_behind(Embeddings.load(file).meta)
        if images.flip:
            raise ValueError("its vectors are means over mirror images, behind which no head can be put")
        if images.dim != head.features:
            raise ValueError(f"its vectors have {images.dim} numbers, the head takes {head.features}")
    except (ValueError, OSError, ImportError) as error:
        reason = str(error) if str(file) in str(error) else f"{file}: {error}"
        return Model(path, run.config, head.dim, None, head, None, chosen, reason)
    images.head, images.dim = nn.Sequential(images.head, head), head.dim
    images.channels_last = run.config.network.channels_last
    return Model(path, run.config, head.dim, images.to(chosen).eval(), head, images.preprocessing, chosen)


def network_behind(meta: dict[str, Any]) -> Embedder:
    """The network that made an embeddings file, as its ``meta`` describes it, with the very same weights.

    Raises ``ValueError`` if the file does not say, or if those weights are no longer available.
    """
    try:
        name, dim, pool = str(meta["model"]), int(meta["dim"]), str(meta["pool"])
        expected, source = str(meta["weights_sha256"]), str(meta["weights"])
        preprocessing = _preprocessing(meta["preprocessing"])
    except (KeyError, TypeError) as error:
        raise ValueError("its header does not say which network its vectors came from") from error
    file = Path(source) if Path(source).is_file() else None
    for head in (None, dim):  # the bare features, or those of a head in that file
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            network = models.build(name, dim=head, weights=file, pool=pool, size=preprocessing["size"])
        if network.dim == dim and weights_hash(network) == expected:
            network.preprocessing = preprocessing
            network.flip = meta.get("flip") is True
            return network
    raise ValueError(f"the weights of {name} that made it ({source}) are not here any more, or have changed")


def _behind_file(path: Path, device: torch.device) -> Model:
    try:
        if path.suffix not in READERS:
            raise ValueError(f"neither a run directory nor an embeddings file ({', '.join(READERS)})")
        network = network_behind(Embeddings.load(path).meta).to(device).eval()
    except ValueError as error:
        text = str(error) if str(path) in str(error) else f"{path}: {error}"
        run = Run.around(path)
        hint = "" if run is None else f" (name the run directory itself: {run.path})"
        raise ValueError(text + hint) from error
    return Model(path, None, network.dim, network, None, network.preprocessing, device)


def _preprocessing(given: dict[str, Any]) -> Preprocessing:
    plain = json.loads(json.dumps(given))
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
    return cast(Preprocessing, values)


def _check_batch(size: int) -> None:
    if size < 1:
        raise ValueError(f"batch_size must be 1 or more, got {size}")


def _each(model: Model, batches: Any, on_batch: Callable[[int], None]) -> Iterator[tuple[Tensor, Tensor]]:
    assert model.network is not None
    dtype = PRECISIONS[model.precision]
    for batch in batches:
        z, _, rows = embed_batches(
            model.network, [batch], device=model.device, precision=dtype, on_batch=on_batch
        )
        yield z, rows


def _plain(model: Model) -> dict[str, Any] | None:
    given = model.preprocessing
    return None if given is None else {k: list(v) if isinstance(v, tuple) else v for k, v in given.items()}


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
