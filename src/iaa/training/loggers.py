"""A logger beside ``log.jsonl``: TensorBoard where it is installed, others by option."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iaa.config import Config
from iaa.errors import need

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Tell = Callable[[int, dict[str, Any]], None]


@contextmanager
def attach(config: Config, folder: Path, fabric: "Fabric") -> Iterator[Tell]:
    """Within, a function that takes an epoch and its numbers; however it ends, what is written is closed."""
    logger = _make(config.run.logger, folder) if fabric.is_global_zero else None
    if logger is None:
        yield lambda epoch, values: None
        return

    def tell(epoch: int, values: dict[str, Any]) -> None:
        logger.log_metrics(_flat(values), step=epoch)
        logger.save()

    outcome = "failed"
    try:
        yield tell
        outcome = "success"
    finally:
        logger.finalize(outcome)


def _make(name: str, folder: Path) -> Any:
    if name == "auto":
        there = any(importlib.util.find_spec(package) for package in ("tensorboard", "tensorboardX"))
        name = "tensorboard" if there else "none"
    if name == "none":
        return None
    if name in ("tensorboard", "csv"):
        from lightning_fabric.loggers.csv_logs import CSVLogger
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger

        kind: Any = TensorBoardLogger if name == "tensorboard" else CSVLogger
        return kind(root_dir=str(folder), name="", version=name)
    loggers = need("pytorch_lightning.loggers", extra="loggers")
    if name == "wandb":
        return loggers.WandbLogger(name=folder.name, project="iaa", save_dir=str(folder))
    return loggers.MLFlowLogger(experiment_name="iaa", run_name=folder.name)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}/")
        elif value is not None:
            found[prefix + name.replace("@", "_at_")] = float(value)
    return found
