"""A logger in addition to ``log.jsonl``: TensorBoard if it is installed, others by option."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from iaa.config import Config
from iaa.errors import need
from iaa.runs import Run

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Send = Callable[[int, dict[str, Any]], None]


@contextmanager
def attach(config: Config, run: Run, fabric: "Fabric") -> Iterator[Send]:
    """Yields a function that logs an epoch and its values; the logger is closed in any case."""
    logger = _make(config.run.logger, run) if fabric.is_global_zero else None
    if logger is None:
        yield lambda epoch, values: None
        return

    def send(epoch: int, values: dict[str, Any]) -> None:
        logger.log_metrics(_flat(values), step=epoch)
        logger.save()

    outcome = "failed"
    try:
        yield send
        outcome = "success"
    finally:
        logger.finalize(outcome)


def _make(name: str, run: Run) -> Any:
    if name == "auto":
        installed = any(importlib.util.find_spec(package) for package in ("tensorboard", "tensorboardX"))
        name = "tensorboard" if installed else "none"
    if name == "none":
        return None
    if name in ("tensorboard", "csv"):
        from lightning_fabric.loggers.csv_logs import CSVLogger
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger

        kind: Any = TensorBoardLogger if name == "tensorboard" else CSVLogger
        return kind(root_dir=str(run.path), name="", version=name)
    loggers = need("pytorch_lightning.loggers", extra="loggers")
    if name == "wandb":
        return loggers.WandbLogger(name=run.name, project="iaa", save_dir=str(run.path))
    return loggers.MLFlowLogger(experiment_name="iaa", run_name=run.name)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, float]:
    flat: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}/")
        elif value is not None:
            flat[prefix + name.replace("@", "_at_")] = float(value)
    return flat
