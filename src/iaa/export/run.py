"""From a finished run to what can be given away: an ONNX file that was checked, or a folder with a card."""

from pathlib import Path
from typing import Any

from iaa import __version__
from iaa.export.bundle import read_json, write_bundle
from iaa.export.card import public_data
from iaa.export.check import Agreement, agreement, samples
from iaa.export.graph import Exportable, write_graph
from iaa.retrieval.embeddings import Embeddings, replace_file
from iaa.search.model import Model


def export_onnx(model: Model, target: Path, *, vectors: bool = False) -> Agreement:
    """Write the file beside its place, compare it with the network, and only then put it there.

    ``vectors``: of a head trained on vectors the head alone, even if the network before it is known.
    """
    what = _exportable(model, vectors=vectors)
    about = _about(model)
    inputs, real = samples(what, _own_pictures(model.path))
    found: list[Agreement] = []

    def write(path: Path) -> None:
        write_graph(what, path, about=about)
        found.append(agreement(path, what, inputs, real))

    replace_file(target, write)
    return found[0]


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
        raise ValueError(f"only heads trained on vectors take vectors: {model.path} was trained on pictures")
    return Exportable(model.network, model.preprocessing)


def _own_pictures(run: Path) -> list[str]:
    files = sorted(run.glob("embeddings*.safetensors"))
    return [name for name in Embeddings.load(files[0]).ids if Path(name).is_file()] if files else []


def _about(model: Model) -> dict[str, Any]:
    if model.config is None:
        raise ValueError(f"{model.path} is an embeddings file: export takes a run directory")
    return {
        "run": model.path.resolve().name,
        "data": public_data(model.config.data),
        "model": model.config.model,
        "loss": model.config.loss,
        "dim": model.dim,
        "similarity": "cosine",
        "test": read_json(model.path / "metrics.json")["test"],
        "iaa": __version__,
    }
