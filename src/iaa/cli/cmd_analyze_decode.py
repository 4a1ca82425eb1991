"""``iaa analyze decode``: synthetics in pixel space, by a small decoder trained on a run's own images."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch import Tensor

from iaa.analysis import decoder
from iaa.analysis.synthetics import compact
from iaa.config import Augment
from iaa.progress import progress
from iaa.report.analysis_input import Split, read_input
from iaa.report.collect import DECODED, augmentation, image_folders
from iaa.report.findings import Findings
from iaa.report.run_files import read_run
from iaa.report.strips import decoded, sheet
from iaa.report.thumbnails import Thumbnails
from iaa.retrieval.embeddings import Embeddings


def command(
    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    out: Path | None = None,
    figure: Path | None = None,
    images: tuple[Path, ...] = (),
    split: Split = "auto",
    side: int = 32,
    epochs: int = 12,
    shown: int = 8,
    copies: int = 5,
    most: int = 20_000,
    seed: int = 0,
) -> int:
    """Show synthetics as images (Fig. 15): train a small decoder from embeddings back to pixels.

    It learns from nine tenths of the images and is shown on the rest: original, reconstruction, synthetics.
    In a run it leaves decoded.safetensors, which `iaa report` shows.

    Args:
        path: A run directory, or an embeddings file.
        out: The .safetensors to write; without it, decoded.safetensors in the run or beside the file.
        figure: Draw the images into this .png as well.
        images: Folders with the images, where the ids of the embeddings are no paths.
        split: Which classes; auto is those of training, where there are any.
        side: Of a decoded image in pixels, a multiple of 4.
        epochs: Rounds over the images.
        shown: Samples to show.
        copies: Synthetics around each.
        most: Images to learn from at most.
        seed: Draws weights, batches, what is held out and synthetics.
    """
    if side < 4 or side % 4:
        raise ValueError(f"--side must be a multiple of 4, got {side}")
    if figure is not None and figure.suffix != ".png":
        raise ValueError(f"--figure must end in .png, got {figure}")
    run = read_run(path)
    given = read_input(path, split)
    data = given.data
    augment = augmentation(run.config.augment if run.config else Augment(), data)
    found = Thumbnails(image_folders(run, data, images))
    rows, pixels = _read(found, data, side, most, seed)
    began = time.monotonic()
    with progress("learning") as tick:
        made = decoder.decode(
            data.z[rows].float(),
            compact(data.labels)[1][rows],
            pixels,
            augment,
            shown=shown,
            copies=copies,
            epochs=epochs,
            seed=seed,
            tick=tick,
        )
    names = data.class_names or {}
    chosen = rows[made.rows]
    labels = data.labels[chosen].tolist()
    made = replace(
        made,
        rows=chosen,
        ids=[data.ids[row] for row in chosen.tolist()],
        names=[names.get(label, str(label)) for label in labels],
    )
    target = out or (path / DECODED if path.is_dir() else path.with_name(DECODED))
    decoder.save(made, target)
    print(
        f"{made.seen:,} images learned in {time.monotonic() - began:.0f} s; of {made.held_out:,} others "
        f"the decoder explains {100 * made.explained:.0f} % of the pixels' variance",
        file=sys.stderr,
    )
    print(target)
    if figure is not None:
        strips = decoded(Findings(run, data, found, data, decoded=made))
        assert strips is not None  # it was decoded just now
        print(sheet(strips, figure))
    return 0


def _read(found: Thumbnails, data: Embeddings, side: int, most: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows whose images can be read, at most so many, and their pixels."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:most].sort().values
    rows, pixels = [], []
    with progress("reading images") as tick:
        for place, row in enumerate(order.tolist(), 1):
            image = found.pixels(data.ids[row], side)
            if image is not None:
                rows.append(row)
                pixels.append(image)
            tick(place / len(order))
    if not rows:
        raise FileNotFoundError(
            f"none of the images is there, such as {data.ids[0]!r}: --images FOLDER says where they lie"
        )
    return torch.tensor(rows), torch.stack(pixels)
