"""The model card: purpose, training data, recipe, scores, and how to load the model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iaa.config import Config
from iaa.export.onnx_graph import Exportable

Summaries = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Of every test part, of every metric: value, over_queries and over_classes."""


def card(
    config: Config,
    what: Exportable,
    *,
    name: str,
    metrics: Mapping[str, Any],
    summaries: Summaries,
    environment: Mapping[str, Any],
    load_from: str | None = None,
) -> str:
    """The whole card as Markdown, with the header that model hubs read."""
    parts = [
        _header(config),
        f"# {name}",
        "An embedding model for retrieval: what belongs together lies close by cosine similarity, also in "
        f"classes that were never trained on.\n\nNetwork: {_described(what)}.",
        "## Data",
        _data(config, metrics),
        "## Recipe",
        _recipe(config, metrics, environment),
        "## Numbers",
        _numbers(metrics, summaries),
        "## Load",
        _load(what, load_from),
        "## Input",
        "`iaa.load` prepares images by itself; for use elsewhere:\n\n```json\n"
        + json.dumps(what.input_of_network())
        + "\n```",
        "## Limits",
        "The numbers are those of the data above. On images of another kind measure first: "
        "`iaa embed` and `iaa evaluate` take minutes. Similarity says what looks alike to the model, "
        "not that two things are the same.",
    ]
    return "\n\n".join(parts) + "\n"


def public_data(data: str) -> str:
    """The name of the data without the folders of this machine."""
    kind, colon, path = data.partition(":")
    return f"{kind}:{Path(path).name}" if colon else data


def _header(config: Config) -> str:
    kind = "image-feature-extraction" if config.vectors_file is None else "feature-extraction"
    tags = "\n".join(f"- {tag}" for tag in ("metric-learning", "image-retrieval", "safetensors", "iaa"))
    return f"---\nlibrary_name: iaa\npipeline_tag: {kind}\ntags:\n{tags}\n---"


def _data(config: Config, metrics: Mapping[str, Any]) -> str:
    train = metrics["train"]
    split = config.split
    size = f"{train['samples']:,} samples of {train['classes']:,} classes"
    facts = [f"`{public_data(config.data)}`: trained on {size}"]
    if split.per_class is not None:
        facts.append(f"at most {split.per_class} of each")
    if split.val_classes:
        facts.append(f"{split.val_classes:.0%} of the training classes held out to choose the epoch")
    shared = train.get("tested_as_well")
    some = f"{shared:,} of the test classes below were trained on as well."
    return f"{', '.join(facts)}. {some if shared else 'The test classes below share none with training.'}"


def _recipe(config: Config, metrics: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    augment = config.augment
    method = (
        "none (baseline)"
        if not augment.copies
        else f"IAA: {augment.copies} synthetics per sample, strength {augment.strength:g}, "
        f"{augment.covariance} covariance, neighbour correction {'on' if augment.correction else 'off'}"
    )
    versions = environment.get("versions", {})
    optimizer = config.optimizer
    made_with = (
        f"iaa {versions.get('iaa')}, torch {versions.get('torch')}, commit {environment.get('commit')}"
    )
    if not config.trains:
        head = (
            "whitening, computed from the class covariances" if config.network.head == "whitening" else "none"
        )
        rows = {"network": config.network_name, "head": head, "training": "none", "made with": made_with}
        return _table(rows)
    on_features = " on features of the frozen network" if config.network.freeze_backbone else ""
    rows = {
        "network": config.network_name,
        "loss": " ".join([config.loss, *(f"{key}={value}" for key, value in config.loss_options.items())]),
        "augmentation": method,
        "batch": f"{config.batch.classes} classes, {config.batch.per_class} of each",
        "optimiser": f"{optimizer.name}, rate {optimizer.lr:g} (head x {optimizer.head_factor:g}), "
        f"weight decay {optimizer.weight_decay:g}, {optimizer.schedule}",
        "epochs": f"{config.epochs}{on_features}"
        if "ladder" in metrics
        else f"{config.epochs} (these weights: epoch {metrics['epoch'] + 1}, the {_chosen(metrics)})",
        "precision and seed": f"{config.precision}, {config.seed}",
        "training time": f"{metrics['training_seconds'] / 60:.1f} minutes",
        "made with": made_with,
    }
    return _table(rows)


def _table(rows: Mapping[str, str]) -> str:
    lines = ["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())]
    return "\n".join(lines) + "\n\nEvery option is in `config.json`."


def _numbers(metrics: Mapping[str, Any], summaries: Summaries) -> str:
    text = [
        "Percent, with 95 % bootstrap intervals over queries and over whole classes "
        "(the honest one for classes that are new)."
    ]
    for part, summary in summaries.items():
        lines = [f"| {part} | value | over queries | over classes |", "|---|---:|---:|---:|"]
        for metric, values in summary.items():
            spans = [
                f"{low:.1f} – {high:.1f}" for low, high in (values["over_queries"], values["over_classes"])
            ]
            lines.append(f"| {metric} | {values['value']:.1f} | {spans[0]} | {spans[1]} |")
        text.append("\n".join(lines))
    table = metrics["table"]
    if len(table) > 1:
        part = next(iter(metrics["test"]))
        names = list(metrics["test"][part])
        lines = [f"| compared with ({part}) | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
        for row, scores in table.items():
            lines.append(f"| {row} | " + " | ".join(f"{scores[part][name]:.1f}" for name in names) + " |")
        text.append("\n".join(lines))
    return "\n\n".join(text)


def _load(what: Exportable, load_from: str | None) -> str:
    inputs = "vectors" if what.preprocessing is None else '["photo.jpg"]'
    source = '"FOLDER")  # the folder of this file' if load_from is None else f'"{load_from}")'
    code = f"import iaa\n\nmodel = iaa.load({source}\nz = model.embed({inputs})"
    note = "`model.safetensors` holds only weights; reading it runs no code."
    return f"```python\n{code}\n```\n\n{note}"


def _chosen(metrics: Mapping[str, Any]) -> str:
    return "best on held-out classes" if metrics["select"] == "best" else "last"


def _described(what: Exportable) -> str:
    text: str = what.network.describe()  # type: ignore[operator]
    return text
