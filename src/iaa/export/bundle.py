"""Weights, configuration and model card in one folder to publish."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from iaa.export.model_card import card, public_data
from iaa.export.onnx_graph import Exportable
from iaa.files import write_json, write_tensors, write_text
from iaa.hub import FILES
from iaa.retrieval.evaluation import evaluate
from iaa.runs import GALLERIES, Run

MODEL, CONFIG, PREPROCESSING, METRICS, CARD = FILES


def is_bundle(folder: Path) -> bool:
    """Whether a folder was written by ``write_bundle``, with all its files."""
    return all((folder / name).is_file() for name in FILES)


def write_bundle(run: Run, what: Exportable, out: Path, *, load_from: str | None = None) -> list[Path]:
    """Write ``FILES`` into the folder ``out``, without paths of this machine."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must name a folder for safetensors, got the file {out}")
    known = (*FILES, GALLERIES)  # `iaa search` keeps galleries there
    others = sorted(file.name for file in out.iterdir() if file.name not in known) if out.exists() else []
    if others:
        raise ValueError(f"{out} holds other files ({others[0]}): name a new folder with --out")
    config, metrics, environment = run.config, run.metrics, run.environment
    summaries = _summaries(run)
    shared = replace(config, data=public_data(config.data), root=None)
    shared = replace(
        shared, network=replace(config.network, weights=None), run=replace(config.run, out="runs")
    )
    text = card(
        shared,
        what,
        name=run.name,
        metrics=metrics,
        summaries=summaries,
        environment=environment,
        load_from=load_from,
    )
    write_tensors(out / MODEL, what.network.state_dict(), {"format": "pt"})
    write_text(out / CONFIG, shared.to_json())
    write_json(out / PREPROCESSING, what.input_of_network())
    write_json(out / METRICS, metrics | {"intervals": summaries})
    write_text(out / CARD, text)
    return [out / name for name in FILES]


def _summaries(run: Run) -> dict[str, Any]:
    """Intervals of every test set, from the embeddings in the run."""
    summaries = {}
    for part, scores in run.metrics["test"].items():
        ks = tuple(int(name.removeprefix("R@")) for name in scores if name.startswith("R@"))
        summaries[part] = evaluate(run.embeddings(part), ks=ks).summary()
    return summaries
