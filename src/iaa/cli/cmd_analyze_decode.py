"""``iaa analyze decode``: synthetics in pixel space, by a small decoder trained on a run's own images."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from iaa.cli.run_paths import check_paths
from iaa.progress import progress
from iaa.report.analysis_input import Split, read_input

if TYPE_CHECKING:
    from torch import Tensor

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

    The decoder learns from nine tenths of the images and is shown on the rest: original, reconstruction,
    synthetics. It writes decoded.safetensors, which `iaa report` shows, into the run.

    Args:
        path: A run directory, or an embeddings file.
        out: The .safetensors to write; without it, decoded.safetensors in the run or next to the file.
        figure: Also draw the images into this .png.
        images: Folders with the images, if the ids of the embeddings are not paths.
        split: Which classes; auto takes the training classes, where there are any.
        side: Side of a decoded image in pixels, a multiple of 4.
        epochs: Passes over the images.
        shown: Samples to show.
        copies: Synthetics around each.
        most: Most images to learn from.
        seed: Seed of weights, batches, the held-out images and synthetics.
    """
    if side < 4 or side % 4:
        raise ValueError(f"--side must be a multiple of 4, got {side}")
    if figure is not None and figure.suffix != ".png":
        raise ValueError(f"--figure must end in .png, got {figure}")
    check_paths(path)
    from iaa.analysis import decoder
    from iaa.config import Augment
    from iaa.report.collect import DECODED, augmentation, image_folders
    from iaa.report.findings import Findings, read_run
    from iaa.report.image_blocks import contact_sheet, decoded_strips
    from iaa.report.thumbnails import Thumbnails

    run = read_run(path)
    data = read_input(path, split).data
    augment = augmentation(run.config.augment if run.config else Augment(), data)
    thumbnails = Thumbnails(image_folders(run, data, images))
    rows, pixels = _read(thumbnails, data, side, most, seed)
    start = time.monotonic()
    with progress("learning") as tick:
        result = decoder.decode(
            data.z[rows].float(),
            data.labels.unique(return_inverse=True)[1][rows],
            pixels,
            augment,
            shown=shown,
            copies=copies,
            epochs=epochs,
            seed=seed,
            tick=tick,
        )
    chosen = rows[result.rows]
    labels = data.labels[chosen].tolist()
    result = replace(
        result,
        rows=chosen,
        ids=[data.ids[row] for row in chosen.tolist()],
        names=[data.class_name(label) for label in labels],
    )
    target = out or (path / DECODED if path.is_dir() else path.with_name(DECODED))
    decoder.save(result, target)
    print(
        f"{result.seen:,} images learned in {time.monotonic() - start:.0f} s; of {result.held_out:,} others "
        f"the decoder explains {100 * result.explained:.0f} % of the pixels' variance",
        file=sys.stderr,
    )
    print(target)
    if figure is not None:
        strips = decoded_strips(Findings(run, data, thumbnails, data, decoded=result))
        assert strips is not None  # it was decoded just now
        print(contact_sheet(strips, figure))
    return 0


def _read(
    thumbnails: "Thumbnails", data: "Embeddings", side: int, most: int, seed: int
) -> "tuple[Tensor, Tensor]":
    """Rows whose images can be read, at most ``most``, and their pixels."""
    import torch

    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:most].sort().values
    rows, pixels = [], []
    with progress("reading images") as tick:
        for number, row in enumerate(order.tolist(), 1):
            image = thumbnails.pixels(data.ids[row], side)
            if image is not None:
                rows.append(row)
                pixels.append(image)
            tick(number / len(order))
    if not rows:
        raise FileNotFoundError(
            f"none of the images can be read, such as {data.ids[0]!r}: --images FOLDER says where they are"
        )
    return torch.tensor(rows), torch.stack(pixels)
