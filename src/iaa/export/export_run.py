"""Export a finished run: an ONNX file that was checked, or a folder with weights and a model card."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from iaa import __version__
from iaa.config import Config
from iaa.data.image_ref import image_path
from iaa.export.bundle import is_bundle, write_bundle
from iaa.export.model_card import public_data
from iaa.export.onnx_check import Agreement, agreement, samples
from iaa.export.onnx_graph import Exportable, write_graph
from iaa.files import replacing
from iaa.gallery.listing import own_images
from iaa.hub import FILES, parse_repo, upload
from iaa.inference import Model
from iaa.runs import Run


def export_onnx(model: Model, target: Path, *, vectors: bool = False) -> Agreement:
    """Write a temporary file, compare it with the network, and only then move it to ``target``.

    ``vectors`` exports only the head of a run on vectors, even if the network before it is available.
    """
    if model.config is None:
        raise ValueError(f"{model.path} is an embeddings file: export takes a run directory")
    what = _exportable(model, vectors=vectors)
    about = _about(model, model.config)
    inputs, real = samples(what, _own_images(Run(model.path)))
    with replacing(target) as temporary:
        write_graph(what, temporary, about=about)
        return agreement(temporary, what, inputs, real)


def export_safetensors(model: Model, out: Path, *, load_from: str | None = None) -> list[Path]:
    """Write what was trained (the network, or only the head), its configuration and its card.

    ``load_from`` is the name that the card gives to ``iaa.load``; without it, the folder.
    """
    if model.config is None:
        raise ValueError(f"{model.path} is an embeddings file: export takes a run directory")
    what = _exportable(model, vectors=model.head is not None)
    return write_bundle(Run(model.path), what, out, load_from=load_from)


def publish(model: Model, repo: str, *, private: bool, token: str | None, message: str) -> str:
    """Upload what ``export_safetensors`` writes to the Hugging Face hub; the commit's URL."""
    target = parse_repo(repo)
    with tempfile.TemporaryDirectory() as folder:
        if is_bundle(model.path):  # from the hub, or exported: as it is
            files = [Path(shutil.copy(model.path / name, folder)) for name in FILES]
        else:
            files = export_safetensors(model, Path(folder), load_from=str(target))
        return upload(files[0].parent, target, private=private, token=token, message=message)


def _exportable(model: Model, *, vectors: bool) -> Exportable:
    if model.head is not None and (vectors or model.network is None):
        return Exportable(model.head, None, model.head.features)
    if vectors or model.network is None:
        raise ValueError(f"only heads trained on vectors take vectors: {model.path} was trained on images")
    return Exportable(model.network, model.preprocessing)


def _own_images(run: Run) -> list[str]:
    """Paths of the run's data, as far as they can still be listed."""
    try:
        return [path for path in map(image_path, own_images(run).ids) if path is not None]
    except (OSError, ValueError, ImportError):  # the data have moved: random inputs will do
        return []


def _about(model: Model, config: Config) -> dict[str, Any]:
    run = Run(model.path)
    return {
        "run": run.name,
        "data": public_data(config.data),
        "model": config.network_name,
        "loss": config.loss,
        "dim": model.dim,
        "similarity": "cosine",
        "test": run.metrics["test"],
        "iaa": __version__,
    }
