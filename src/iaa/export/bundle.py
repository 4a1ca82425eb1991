"""Weights, configuration and model card in one folder that can be given away."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from iaa.config import Config
from iaa.export.model_card import card, public_data
from iaa.export.onnx_graph import Exportable
from iaa.files import write_tensors, write_text
from iaa.retrieval.embeddings import Embeddings
from iaa.retrieval.evaluation import evaluate

FILES = ("model.safetensors", "config.json", "preprocessing.json", "metrics.json", "README.md")
KEPT = "galleries"
"""What `iaa search` keeps in the folder, beside them."""


def write_bundle(config: Config, what: Exportable, run: Path, out: Path) -> list[Path]:
    """Write ``FILES`` into the folder ``out``; paths of this machine stay behind."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must name a folder for safetensors, got the file {out}")
    known = (*FILES, KEPT)
    strangers = sorted(file.name for file in out.iterdir() if file.name not in known) if out.exists() else []
    if strangers:
        raise ValueError(f"{out} holds other files ({strangers[0]}): name a new folder with --out")
    metrics = read_metrics(run)
    surroundings = read_json(run / "surroundings.json")
    summaries = _summaries(run, metrics)
    shared = replace(config, data=public_data(config.data), root=None)
    shared = replace(
        shared, network=replace(config.network, weights=None), run=replace(config.run, out="runs")
    )
    write_tensors(out / "model.safetensors", what.network.state_dict(), {"format": "pt"})
    text = card(shared, what, name=run.name, metrics=metrics, summaries=summaries, surroundings=surroundings)
    texts = {
        "config.json": shared.to_json(),
        "preprocessing.json": _json(what.input_of_network()),
        "metrics.json": _json(metrics | {"intervals": summaries}),
        "README.md": text,
    }
    for name, content in texts.items():
        write_text(out / name, content)
    return [out / name for name in FILES]


def read_json(path: Path) -> dict[str, Any]:
    """A file of the run directory; a run that was not finished has none."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: the run is not finished (iaa train --resume {path.parent})"
        )
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold an object, got {type(content).__name__}")
    return content


def read_metrics(run: Path) -> dict[str, Any]:
    """The run's ``metrics.json``, which must hold all that a card tells."""
    file = run / "metrics.json"
    metrics = read_json(file)
    number = (int, float)
    wanted: dict[str, Any] = {
        "test": dict,
        "train": dict,
        "table": dict,
        "epoch": int,
        "training_seconds": number,
        "select": str,
    }
    for name, kind in wanted.items():
        if not isinstance(metrics.get(name), kind):
            raise ValueError(f"{file} is damaged: {name!r} is missing or not what a finished run writes")
    for name in ("samples", "classes"):
        if not isinstance(metrics["train"].get(name), int):
            raise ValueError(f"{file} is damaged: {name!r} of 'train' is missing or no whole number")
    for part, scores in metrics["test"].items():
        rows = [scores, *(row.get(part) for row in metrics["table"].values() if isinstance(row, dict))]
        same = len(rows) == 1 + len(metrics["table"]) and isinstance(scores, dict)
        if not same or not all(isinstance(row, dict) and row.keys() >= scores.keys() for row in rows):
            raise ValueError(
                f"{file} is damaged: 'table' must hold the scores that 'test' holds for {part!r}"
            )
    return metrics


def _summaries(run: Path, metrics: dict[str, Any]) -> dict[str, Any]:
    """Intervals of every test part, from the embeddings the run has kept."""
    found = {}
    for part, scores in metrics["test"].items():
        file = run / ("embeddings.safetensors" if part == "test" else f"embeddings-{part}.safetensors")
        ks = tuple(int(name.removeprefix("R@")) for name in scores if name.startswith("R@"))
        found[part] = evaluate(Embeddings.load(file), ks=ks).summary()
    return found


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"
