"""Errors that say what was expected, what was given, and what to do."""

import difflib
import importlib
import signal
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

MANY = 15
"""More options than these are not listed where near spellings can be."""


def unknown(argument: str, got: object, options: Iterable[str]) -> ValueError:
    """A ``ValueError`` that names the argument, the nearest valid spelling and the options.

    >>> str(unknown("covariance", "diag", ["diagonal", "full"]))
    "covariance must be one of 'diagonal', 'full'; got 'diag' (did you mean 'diagonal'?)"
    """
    names = list(options)
    near = difflib.get_close_matches(str(got), names, n=3 if len(names) > MANY else 1, cutoff=0.4)
    hint = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
    listed = f"{len(names)} names" if len(names) > MANY and near else ", ".join(map(repr, names))
    return ValueError(f"{argument} must be one of {listed}; got {got!r}{hint}")


def missing_folder(path: Path) -> OSError:
    """The error for a folder that is not there: a file, an archive, or a name spelled almost right."""
    if path.is_file():
        archive = path.suffix in (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar")
        remedy = "unpack it first" if archive else "name the folder that holds one sub-folder per class"
        return NotADirectoryError(f"{path} is a file, not a folder: {remedy}")
    nearby = [entry.name for entry in path.parent.iterdir() if entry.is_dir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, nearby, n=1)
    hint = f" (did you mean {path.parent / near[0]}?)" if near else ""
    return FileNotFoundError(f"folder {path} does not exist{hint}")


def need(module: str, *, extra: str) -> ModuleType:
    """Import an optional package, or say in one line which extra brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ImportError(f"{error.name} is not installed: pip install 'iaa[{extra}]'") from error


def one_line(error: BaseException) -> str:
    """The message of an error without line breaks; its type if it has none."""
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("iaa"):
        return f"{error.name.partition('.')[0]} is not installed: pip install 'iaa[all]' brings everything"
    return " ".join(str(error).split()) or type(error).__name__


def first_line(error: BaseException) -> str:
    """The first line of an error whose message goes on to explain at length."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class Stopped(KeyboardInterrupt):
    """A signal ended the work after its state was saved; programs exit with 128 + its number."""

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.exit_code = 128 + int(number)
