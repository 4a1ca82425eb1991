"""The page of commands, made from ``--help`` whenever the site is built: it cannot go out of date."""

import contextlib
import importlib
import io
import os
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from mkdocs.structure.files import File, Files

WIDTH = 96
INTRODUCTION = """# Commands

This page is the output of `--help`, written when the site was built. Every command takes `--traceback`, which
shows where an error came from.

"""


def on_files(files: Files, config: Any) -> Files:
    """MkDocs calls this with the files it found."""
    files.append(File.generated(config, "commands.md", content=page()))
    return files


def page() -> str:
    """All commands and their subcommands."""
    from iaa.cli import VERBS

    parts = [INTRODUCTION]
    for verb, meaning in VERBS.items():
        parts.append(f"## iaa {verb}\n\n{meaning[0].upper()}{meaning[1:]}.\n\n{_block(help_of(verb))}")
        parts += [f"### iaa {verb} {sub}\n\n{_block(help_of(verb, sub))}" for sub in subcommands(verb)]
    return "\n".join(parts)


def subcommands(verb: str) -> Iterator[str]:
    """``check``, ``stats`` and ``sheet`` of ``iaa data``."""
    command = getattr(importlib.import_module(f"iaa.cli.cmd_{verb}"), "command", None)
    yield from command if isinstance(command, dict) else ()


def help_of(*words: str) -> str:
    """What ``iaa WORDS --help`` prints, without colours."""
    from iaa.cli import main

    out = io.StringIO()
    before = {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR", "TERM")}
    os.environ |= {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb"}
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main([*words, "--help"])
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).strip()


def _block(text: str) -> str:
    """Sentences are wrapped, which tyro leaves to the terminal; tables and lists keep their lines."""
    lines = (
        line if line.startswith((" ", "- ")) else textwrap.fill(line, WIDTH) for line in text.splitlines()
    )
    return "```text\n" + "\n".join(lines) + "\n```\n"
