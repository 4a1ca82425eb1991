"""Arguments: what a command takes, and mistakes as one line."""

import importlib
import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from iaa.cli.arguments import SYNONYMS, call, full_name, option_names, options_of
from iaa.cli.cmd_train import TrainOptions


@dataclass(frozen=True)
class Group:
    """Options that belong together."""

    model: str = "lite0"
    """A network."""


GROUP = Group()


def command(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    out: Path,
    top: int = 5,
    rate: float = 0.5,
    to: Literal["onnx", "torch"] = "onnx",
    json: bool = False,
    group: Annotated[Group, tyro.conf.arg(name="")] = GROUP,
) -> str:
    """Do it.

    Args:
        run: A run directory.
        out: The file to write.
        top: How many.
        rate: How much.
        to: The format.
        json: As JSON.
        group: More.
    """
    return f"{run} {out} {top} {json} {group.model}"


def test_a_command_is_called_with_its_arguments():
    words = ["runs/x", "--out", "y", "--top=2", "--json", "--model", "m"]
    assert call(command, "iaa do", words) == "runs/x y 2 True m"
    assert call({"do": command}, "iaa", ["do", *words]) == "runs/x y 2 True m"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("runs/x", "missing --out PATH: The file to write; `iaa do --help` lists all options"),
        ("--out y", "missing RUN: A run directory; `iaa do --help` lists all options"),
        ("x --out y --top two", "error parsing --top: expected a whole number, got 'two'; `iaa do"),
        ("x --out y --rate two", "error parsing --rate: expected a number, got 'two'"),
        ("x --out y --to tar", "invalid choice 'tar' for argument '--to'. Expected one of ('onnx', 'torch')"),
        ("x --out y --top", "missing value for argument '--top'. Expected 1 value; `iaa do"),
        ("x --out y z", "'z' is one argument too many: put names with spaces in quotes; `iaa do"),
        (
            "x --out y --tops 2",
            "unknown option --tops; did you mean --top? `iaa do --help` lists all options",
        ),
        ("x --out y --k 2", "unknown option --k; did you mean --top?"),
        ("x --out y --backbone m", "unknown option --backbone; did you mean --model?"),
        ("x --out y --zzz 2", "unknown option --zzz. `iaa do --help` lists all options"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_mistake_is_one_line_with_a_remedy(words, message, encoding, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        call(command, "iaa do", words.split())
    assert not {"\n", "│"} & set(str(caught.value))
    assert capsys.readouterr().err == ""


def test_a_subcommand_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match=r"the subcommand must be one of 'do'; got 'dou' .did you mean 'do'"):
        call({"do": command}, "iaa", ["dou"])
    with pytest.raises(ValueError, match=r"expected one of \{do, undo\}; `iaa --help` lists all options"):
        call({"do": command, "undo": command}, "iaa", [])


def test_what_a_command_prints_on_stderr_is_not_swallowed(capsys):
    def noisy() -> int:
        """Warn."""
        print("a warning", file=sys.stderr)
        return 3

    assert call(noisy, "iaa do", []) == 3
    assert capsys.readouterr().err == "a warning\n"


def test_options_of_a_command_include_its_groups():
    assert options_of(command) == ["out", "top", "rate", "to", "json", "no-json", "model"]


def test_synonyms_lead_to_options_that_exist():
    modules = [importlib.import_module(f"iaa.cli.cmd_{verb}") for verb in ("search", "embed")]
    known = {
        *option_names(TrainOptions),
        *(name for module in modules for name in options_of(module.command)),
    }
    assert set(SYNONYMS.values()) <= known
    for name, meant in (("gpu", "device"), ("learning-rate", "optimizer.lr"), ("folder", "data")):
        with pytest.raises(ValueError, match=f"did you mean --{meant}"):
            full_name(name, option_names(TrainOptions))
