"""Every figure of a page as files, panels side by side as in a paper."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from iaa.report import figures, strips
from iaa.report.blocks import Page, Strips
from iaa.report.figure_style import Drawing
from iaa.report.findings import Findings

ENDINGS = (".svg", ".png")


def write_figures(every: Sequence[Findings], page: Page, folder: Path) -> list[Path]:
    """Figures as ``.svg`` and ``.png``, strips of images as ``.png``; a number tells equal names apart."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for drawing in _drawings(every):
        stem = _free(drawing.name, written)
        written += [drawing.save(folder / f"{stem}{ending}") for ending in ENDINGS]
    for block in (block for section in page.sections for block in section.blocks):
        if isinstance(block, Strips):
            stem = _free("-".join(block.title.lower().split()), written)
            written.append(strips.sheet(block, folder / f"{stem}.png"))
    return written


def _drawings(every: Sequence[Findings]) -> Iterator[Drawing]:
    logs = [one.run.log for one in every if one.run.log]
    if logs:
        yield figures.losses(logs)
        if all(log.validation for log in logs):
            yield figures.validation(logs)
    mined = [one.mining for one in every if one.mining and one.mining.chooses]
    if mined:
        yield figures.mining(mined)
    pairs = [one.similarity for one in every if one.similarity]
    if pairs:
        yield figures.similarity(pairs)
    for one in every:
        if one.correlation:
            yield figures.correlation(one.correlation)
        if one.variety:
            yield figures.variety(one.variety)
        if one.weights:
            yield figures.weights(one.weights)
        if one.projection:
            names = {label: one.class_name(label) for label in one.projection.labels.unique().tolist()}
            yield figures.tsne(one.projection, names)
        if one.cost:
            yield figures.cost(one.cost)


def _free(stem: str, written: Sequence[Path]) -> str:
    taken, name, number = {path.stem for path in written}, stem, 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}"
    return name
