"""``iaa report``: one self-contained HTML page about one or more runs, with images."""

from pathlib import Path
from typing import Annotated

import tyro

from iaa.cli.run_paths import check_paths
from iaa.report.analysis_input import Split


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
    """Write one HTML page about one or more runs: scores, retrieved images, curves, classes.

    The page is one file and works offline.

    Args:
        runs: Run directories or embeddings files; several are compared, each with the first.
        out: The .html to write; without it, report.html in the run, or here if there are several.
        figures: Also write every figure as .svg and .png into this folder.
        images: Folders with the images, if the ids of the embeddings are not paths.
        split: Which classes the atlas, the map and the verdict describe; auto takes the training classes.
        queries: Number of queries drawn at random to show, and of the worst ones.
        answers: Retrieved images shown for each query.
        seed: Seed of queries, classes and synthetics.
    """
    check_paths(*runs)
    from iaa.report.page import write_report

    written = write_report(
        runs, out, figures=figures, images=images, split=split, queries=queries, answers=answers, seed=seed
    )
    for path in written:
        print(path)
    return 0
