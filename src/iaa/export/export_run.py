"""From a finished run to what can be given away: an ONNX file that was checked, or a folder with a card."""

from pathlib import Path
from typing import Any

from iaa import __version__
from iaa.config import Config, network_name
from iaa.export.bundle import read_metrics, write_bundle
from iaa.export.model_card import public_data
from iaa.export.onnx_check import Agreement, agreement, samples
from iaa.export.onnx_graph import Exportable, write_graph
from iaa.files import replacing
from iaa.gallery.gallery_items import image, own_images
from iaa.inference import Model


def export_onnx(model: Model, target: Path, *, vectors: bool = False) -> Agreement:
    """Write the file beside its place, compare it with the network, and only then put it there.

    ``vectors``: of a head trained on vectors the head alone, even if the network before it is known.
    """
    if model.config is None:
        raise ValueError(f"{model.path} is an embeddings file: export takes a run directory")
    what = _exportable(model, vectors=vectors)
    about = _about(model, model.config)
    inputs, real = samples(what, _own_images(model.config))
    with replacing(target) as temporary:
        write_graph(what, temporary, about=about)
        return agreement(temporary, what, inputs, real)


def export_safetensors(model: Model, out: Path) -> list[Path]:
    """What was trained (the network, or the head alone), its configuration and its card."""
    if model.config is None:
        raise ValueError(f"{model.path} is an embeddings file: export takes a run directory")
    what = _exportable(model, vectors=model.head is not None)
    return write_bundle(model.config, what, model.path, out)


def _exportable(model: Model, *, vectors: bool) -> Exportable:
    if model.head is not None and (vectors or model.network is None):
        return Exportable(model.head, None, model.head.features)
    if vectors or model.network is None:
        raise ValueError(f"only heads trained on vectors take vectors: {model.path} was trained on images")
    return Exportable(model.network, model.preprocessing)


def _own_images(config: Config) -> list[str]:
    """Paths of the run's data, as far as they can still be listed."""
    try:
        return [image(name).path for name in own_images(config).ids]
    except (OSError, ValueError, ImportError):  # the data have moved: random inputs will do
        return []


def _about(model: Model, config: Config) -> dict[str, Any]:
    return {
        "run": model.path.resolve().name,
        "data": public_data(config.data),
        "model": network_name(config),
        "loss": config.loss,
        "dim": model.dim,
        "similarity": "cosine",
        "test": read_metrics(model.path)["test"],
        "iaa": __version__,
    }
