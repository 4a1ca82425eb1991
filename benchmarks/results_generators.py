"""The table of generators, from what benchmarks/generator_table.py keeps."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markdown_tables import grid, number, p_value
from results_prose import GENERATORS_PAGE
from studies import LOSSES

from iaa.presets.paper_tables import numbers

BENCHES = ("cub-head", "emoji")
PAPER = "cub-head", "triplet"
"""The bench and the loss of which the paper's Table III has generators."""


def generators(kept: Path) -> Iterator[str]:
    """A table for each bench and loss that is done; nothing if none is."""
    files = {(bench, loss): kept / f"generators-{bench}-{loss}.json" for bench in BENCHES for loss in LOSSES}
    done = {key: file for key, file in files.items() if file.exists()}
    if not done:
        return
    yield GENERATORS_PAGE
    for (bench, loss), file in done.items():
        study = json.loads(file.read_text())
        yield f"## {bench}, {loss}, {len(study['seeds'])} seeds\n"
        yield from _table(study["arms"], study["summary"]["test"], with_paper=(bench, loss) == PAPER)


def _table(arms: list[str], summary: dict[str, Any], *, with_paper: bool) -> Iterator[str]:
    printed = numbers("Table III") if with_paper else {}
    rows = []
    for arm in arms:
        cells = ["IAA" if arm == "iaa" else arm]
        for metric in ("R@1", "MAP@R"):
            score = summary[metric][arm]
            gain = score.get("against_baseline")
            gained = [f"{gain['difference']:+.2f}", p_value(gain["p_t"])] if gain else ["", ""]
            cells += [number(score), *gained]
        if printed:
            paper = printed.get("gaussian" if arm == "iaa" else arm, {}).get("cub")
            cells.append("" if paper is None else str(paper))
        rows.append(cells)
    paper = ["paper's R@1"] if printed else []
    yield from grid(["", "R@1", "gain", "p", "MAP@R", "gain", "p", *paper], rows)
