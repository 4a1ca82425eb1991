"""The ``--model`` option: a backbone with published or given weights, or the network of a run."""

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iaa.cli.run_paths import check_paths

if TYPE_CHECKING:
    from iaa.models import Embedder

UNTOUCHED: dict[str, Any] = {"dim": None, "weights": None, "pretrained": True, "pool": "avg", "size": None}
"""The defaults of the options that only a backbone takes."""


def open_network(name: str, options: dict[str, Any]) -> "tuple[Embedder, str, str]":
    """The network, the name of its backbone, and where its weights came from."""
    from iaa.models import build

    if Path(name).expanduser().is_dir():
        return _of_run(Path(name).expanduser(), options)
    if "/" in name and not name.startswith("timm/"):
        check_paths(Path(name))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*entries taken", UserWarning)  # printed below, in one line
        network = build(name, **options)
    loaded = network.loaded
    source = "random" if loaded is None else loaded.source
    notes = []
    if loaded is None:
        notes.append(f"the weights of {name} are random: --weights FILE gives others")
    elif loaded.missing or loaded.unexpected:
        notes.append(str(loaded))
    if options["dim"] is not None and (loaded is None or loaded.taken <= len(network.backbone.state_dict())):
        notes.append(f"the head of {network.dim} is random: without --dim the bare features come out")
        source += ", random head"
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return network, name, source


def _of_run(folder: Path, options: dict[str, Any]) -> "tuple[Embedder, str, str]":
    from iaa.inference import load
    from iaa.runs import MODEL

    for option, value in UNTOUCHED.items():
        if options[option] != value:
            raise ValueError(f"--{option} is that of the run {folder}: leave it out")
    model = load(folder, device="cpu")
    if model.network is None:
        raise ValueError(f"{folder} embeds vectors, not images: {model.no_images}")
    return model.network, model.network.name, str((folder / MODEL).absolute())
