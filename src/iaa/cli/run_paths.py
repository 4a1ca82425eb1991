"""Run directories and embeddings files given on the command line."""

from pathlib import Path

SHOWN = 8
"""Runs listed in an error."""
SUFFIXES = (".safetensors", ".npz", ".npy", ".parquet")
"""Endings of embeddings files."""


def check_paths(*paths: Path) -> None:
    """Refuse paths that do not exist, and name the runs that do."""
    for path in paths:
        if not path.expanduser().exists():
            raise FileNotFoundError(f"no such run or embeddings file: {path}; {_runs_hint(path)}")


def check_model(path: Path) -> None:
    """Refuse what has no model: no run directory, no embeddings file, not on the hub (``hf:…``)."""
    if str(path).startswith("hf:"):
        return
    check_paths(path)
    place = path.expanduser()
    if place.is_dir() and not (place / "config.json").is_file():
        raise ValueError(f"{path} is not a run directory: it has no config.json; {_runs_hint(path)}")
    if place.is_file() and place.suffix not in SUFFIXES:
        raise ValueError(f"{path} is neither a run directory nor an embeddings file; {_runs_hint(path)}")


def _runs_hint(path: Path) -> str:
    runs = _runs_near(path.expanduser())
    listed = ", ".join(map(str, runs[:SHOWN])) + (", …" if len(runs) > SHOWN else "")
    return f"you have {listed}" if runs else "`iaa train` makes a run, `iaa embed` an embeddings file"


def _runs_near(path: Path) -> list[Path]:
    """Run directories next to the missing path, or else in ``runs``, the newest first."""
    for folder in (path.parent, Path("runs")):
        if folder.is_dir():
            configs = [entry for entry in folder.glob("*/config.json") if entry.is_file()]
            if configs:
                newest = sorted(configs, key=lambda file: file.stat().st_mtime, reverse=True)
                return [file.parent for file in newest]
    return []
