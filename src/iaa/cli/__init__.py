"""The command line: ``iaa VERB …``. One module per verb, imported only when its verb is called."""

import importlib
import sys
import traceback
from collections.abc import Sequence

from iaa.errors import Stopped, unknown

VERBS: dict[str, str] = {
    "train": "train a model on images and measure it on classes it has not seen",
    "compare": "train a baseline and IAA over equal seeds, and test the difference",
    "ablate": "the paper's ablations and sweeps on any configuration, over equal seeds",
    "data": "check a benchmark against the paper, see what your own data holds",
    "embed": "any network over any dataset to an embeddings file; continues when killed",
    "evaluate": "score embeddings: R@K, RP, MAP@R with intervals, comparisons, worst classes",
    "analyze": "correlation, variety, similarity, mining, cost, class atlas, mislabelled samples",
    "report": "one page about one run or several: scores, images found, curves, classes",
    "search": "the images most like yours, and which class yours may be, or none",
    "gallery": "import and export galleries: a local file or Milvus, embeddings files, Parquet",
    "serve": "search in the browser: a local page and an HTTP API over a run's images",
    "export": "a run as an ONNX file that embeds alone, or as weights with a model card",
}
"""Verb to what it does. ``iaa.cli.cmd_VERB`` holds ``command`` (a function or a dict of them) or ``run``."""


def main(args: Sequence[str] | None = None) -> int:
    """Run one verb; a mistake of the user's ends in one line on stderr and exit code 2."""
    words = list(sys.argv[1:] if args is None else args)
    wants_traceback = "--traceback" in words
    words = [word for word in words if word != "--traceback"]
    if not words or words[0] in ("-h", "--help", "help"):
        return _overview()
    try:
        return _run(words[0], words[1:])
    except KeyboardInterrupt as error:
        print(_one_line(error) if error.args else "stopped by Ctrl-C", file=sys.stderr)
        return error.exit_code if isinstance(error, Stopped) else 130
    except BrokenPipeError:  # the reader of our output left (`iaa … | head`)
        sys.stderr.close()
        return 0
    except (ValueError, OSError, ImportError) as error:
        if wants_traceback:
            traceback.print_exc()
        print(f"iaa {words[0]}: {_one_line(error)}", file=sys.stderr)
        return 2


def _run(verb: str, rest: list[str]) -> int:
    import tyro

    if verb not in VERBS:
        raise unknown("the command", verb, VERBS)
    if "" in rest:  # as a path it would be the current directory
        raise ValueError("an argument is empty: is a variable of the shell not set?")
    module = importlib.import_module(f"iaa.cli.cmd_{verb}")
    if hasattr(module, "run"):  # a verb that reads its own words
        return int(module.run(rest))
    command = module.command
    if isinstance(command, dict):
        code = tyro.extras.subcommand_cli_from_dict(command, prog=f"iaa {verb}", args=rest)
    else:
        code = tyro.cli(command, prog=f"iaa {verb}", args=rest)
    return int(code or 0)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _overview() -> int:
    width = max(map(len, VERBS), default=0)
    print("usage: iaa COMMAND …\n\nDeep metric learning with intra-class adaptive augmentation.\n")
    for verb, meaning in VERBS.items():
        print(f"  {verb:<{width}}  {meaning}")
    print("\n`iaa COMMAND --help` teaches one; add `--traceback` to see where an error came from.")
    return 0
