"""The table of the ladder, from ladder.json."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from markdown_tables import grid
from measurement import HERE

LADDER_FILE = HERE / "ladder.json"
NAMES = {
    "cub": "CUB",
    "emoji": "Emoji",
    "lite0": "Lite0",
    "tinyvit": "TinyViT-5M",
    "convnet": "small network",
}
RUNGS = ("frozen", "square root", "whitening", "head", "head + IAA", "fine-tuned", "fine-tuned + IAA")
"""Of benchmarks/ladder.py."""


def ladder(file: Path = LADDER_FILE) -> Iterator[str]:
    """Every rung that was measured, for each data set and backbone."""
    ladders = {name: ladder["rungs"] for name, ladder in json.loads(file.read_text())["ladders"].items()}
    rungs = [rung for rung in RUNGS if any(rung in measured for measured in ladders.values())]
    rows = []
    for name, measured in sorted(ladders.items(), key=_rank):
        data, backbone, part = name.split("/")
        title = NAMES.get(data, data) + ("" if part == "all" else f", {part} images per class")
        cells = [_means(measured.get(rung, [])) for rung in rungs]
        rows.append([title, NAMES.get(backbone, backbone), *cells, _seeds(measured)])
    yield from grid(["R@1 / MAP@R", "network", *rungs, "seeds"], rows)


def _seeds(measured: dict[str, list[Any]]) -> str:
    """How many seeds the rungs have; fewer where the whole network was trained."""
    tuned = {len(rows) for rung, rows in measured.items() if rung.startswith("fine-tuned")}
    heads = max(len(rows) for rung, rows in measured.items() if not rung.startswith("fine-tuned"))
    return str(heads) if tuned <= {heads} else f"{heads} (fine-tuned: {min(tuned)})"


def _rank(ladder: tuple[str, Any]) -> tuple[bool, bool, str]:
    """CUB with all images first, emoji last."""
    data, backbone, part = ladder[0].split("/")
    return data != "cub", part != "all", backbone


def _means(rows: list[dict[str, float]]) -> str:
    return " / ".join(f"{mean(row[metric] for row in rows):.1f}" for metric in ("R@1", "MAP@R") if rows)
