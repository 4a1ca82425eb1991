"""Run directories and embeddings files given on the command line."""

from pathlib import Path

SHOWN = 8
"""Runs listed in an error."""


def check_paths(*paths: Path) -> None:
    """Refuse paths that do not exist, and name the runs that do."""
    for path in paths:
        if not path.expanduser().exists():
            runs = _runs_near(path.expanduser())
            listed = ", ".join(map(str, runs[:SHOWN])) + (", …" if len(runs) > SHOWN else "")
            hint = f"you have {listed}" if runs else "`iaa train` makes a run, `iaa embed` an embeddings file"
            raise FileNotFoundError(f"no such run or embeddings file: {path}; {hint}")


def _runs_near(path: Path) -> list[Path]:
    """Run directories next to the missing path, or else in ``runs``, the newest first."""
    for folder in (path.parent, Path("runs")):
        if folder.is_dir():
            configs = [entry for entry in folder.glob("*/config.json") if entry.is_file()]
            if configs:
                newest = sorted(configs, key=lambda file: file.stat().st_mtime, reverse=True)
                return [file.parent for file in newest]
    return []
