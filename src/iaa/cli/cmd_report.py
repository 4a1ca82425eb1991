"""``iaa report``: one page about one run or several, with images, in one file."""

from pathlib import Path
from typing import Annotated

import tyro

from iaa.report.analysis_input import Split
from iaa.report.write import write_report


def command(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    out: Path | None = None,
    figures: Path | None = None,
    images: tuple[Path, ...] = (),
    split: Split = "auto",
    queries: int = 8,
    answers: int = 5,
    seed: int = 0,
) -> int:
    """Write one page about one run or several: scores, images found, curves, classes. It needs no network.

    Args:
        runs: Run directories, or embeddings files; several are laid side by side, and against the first.
        out: The .html to write; without it, report.html in the run, or here if there are several.
        figures: Every figure also as .svg and .png into this folder.
        images: Folders with the images, where the ids of the embeddings are no paths.
        split: Whose classes the atlas, the map and the verdict describe; auto is those of training.
        queries: Queries to show, as many drawn at random as worst ones.
        answers: Answers to each query.
        seed: Draws queries, classes and synthetics.
    """
    options = {"images": images, "split": split, "queries": queries, "answers": answers, "seed": seed}
    written = write_report(runs, out, figures=figures, **options)  # type: ignore[arg-type]
    for path in written:
        print(path)
    return 0
