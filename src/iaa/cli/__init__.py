"""The command line: ``iaa COMMAND …``. One module per command, imported only when it is called.

Nothing here or at the top of a command module imports torch: help, completion and argument errors are quick.
"""

import importlib
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from iaa import __version__
from iaa.errors import Stopped, one_line, unknown
from iaa.terminal import printable

VERBS: dict[str, str] = {
    "train": "train a model on images and score it on classes it has not seen",
    "compare": "train a baseline and IAA over equal seeds, and test the difference",
    "ablate": "the paper's ablations and sweeps on any configuration, over equal seeds",
    "data": "check a benchmark against the paper, show what your own data holds",
    "embed": "any network over any dataset to an embeddings file; resumes when killed",
    "evaluate": "score embeddings: R@K, RP, MAP@R with intervals, comparisons, worst classes",
    "analyze": "correlation, variety, similarity, mining, cost, class atlas, mislabelled samples",
    "report": "one HTML page about one or more runs: scores, retrieved images, curves, classes",
    "search": "the images most similar to yours, and which class yours belongs to, if any",
    "gallery": "import and export galleries: a local file or Milvus, embeddings files, Parquet",
    "serve": "search in the browser: a local page and an HTTP API over a run's images",
    "export": "a run as a stand-alone ONNX file, or as weights with a model card",
}
"""Commands. ``iaa.cli.cmd_COMMAND`` holds ``command`` (a function or a dict of them) or ``run``."""

FAILED, UNFORESEEN, INTERRUPTED = 2, 70, 130
"""Exit codes: an error of the user's, one of ours (EX_SOFTWARE), Ctrl-C."""

OPTION_SPELLINGS = {"weights=FILE": "weights FILE", "pretrained=False": "no-pretrained"}
"""How keyword arguments that errors of the library name are given on the command line."""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; an error ends in one line on stderr and a non-zero exit code."""
    arguments = list(sys.argv[1:] if args is None else args)
    show_traceback = "--traceback" in arguments
    arguments = [argument for argument in arguments if argument != "--traceback"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        return _overview()
    if arguments[0] == "--version":
        print(f"iaa {__version__}")
        return 0
    command, *rest = arguments
    try:
        if command == "--print-completion":
            from iaa.cli.completion import completion_script

            print(completion_script(*rest[:1]))
            return 0
        return _run(command, rest)
    except KeyboardInterrupt as error:
        print(printable(one_line(error)) if error.args else "stopped by Ctrl-C", file=sys.stderr)
        return error.exit_code if isinstance(error, Stopped) else INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone (`iaa … | head`)
        sys.stderr.close()
        return 0
    except (ValueError, OSError, ImportError) as error:
        if show_traceback:
            traceback.print_exc()
        print(f"iaa {command}: {_as_options(printable(one_line(error)), command)}", file=sys.stderr)
        return FAILED
    except Exception as error:  # not foreseen: one line all the same, and how to learn more
        if show_traceback:
            traceback.print_exc()
        path = _path_at_hand(error)
        where = f" while working on {printable(str(path))}" if path else ""
        hint = "" if show_traceback else "; add --traceback to see where it happened"
        message = f"unexpected {type(error).__name__}{where}: {printable(one_line(error))}{hint}"
        print(f"iaa {command}: {message}", file=sys.stderr)
        return UNFORESEEN


def _run(command: str, rest: list[str]) -> int:
    if command not in VERBS:
        raise unknown("the command", command, VERBS)
    if "" in rest:  # as a path it would be the current directory
        raise ValueError("an argument is empty: is a shell variable not set?")
    module = importlib.import_module(f"iaa.cli.cmd_{command}")
    if hasattr(module, "run"):  # reads its own arguments
        return int(module.run(rest))
    from iaa.cli.arguments import call

    return int(call(module.command, f"iaa {command}", rest) or 0)


def _as_options(message: str, command: str) -> str:
    """Keyword arguments of the library, and fields of the configuration, as options of a command."""
    configured = command in ("train", "compare", "ablate")
    for keyword, option in OPTION_SPELLINGS.items():
        message = message.replace(keyword, f"--{'network.' * configured}{option}")
    if configured:
        from iaa.cli.arguments import option_names
        from iaa.config import Config

        for option in option_names(Config):
            if "." in option:
                message = re.sub(rf"(?<![\w.'-]){option.replace('-', '_')}\b", f"--{option}", message)
    return message


def _path_at_hand(error: BaseException) -> Path | None:
    """The path that the innermost function with one was working on; an existing file before all others."""
    paths = [
        value
        for frame, _ in traceback.walk_tb(error.__traceback__)
        for value in frame.f_locals.values()
        if isinstance(value, Path)
    ]
    files = [path for path in paths if path.is_file()]
    return next(reversed(files or paths), None)


def _overview() -> int:
    width = max(map(len, VERBS))
    print("usage: iaa COMMAND …\n\nDeep metric learning with intra-class adaptive augmentation.\n")
    for verb, meaning in VERBS.items():
        print(f"  {verb:<{width}}  {meaning}")
    print(
        "\n`iaa COMMAND --help` explains a command; --traceback shows where an error came from.\n"
        "`iaa --version` prints the version, `iaa --print-completion bash` (or zsh) a completion script:\n"
        'eval "$(iaa --print-completion bash)"'
    )
    return 0
