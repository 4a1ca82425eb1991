"""``iaa embed``: any network over any dataset, into embeddings files that `iaa evaluate` and others read."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.text import Text

from iaa.cli.network_option import open_network
from iaa.data import Dataset, evaluations, load
from iaa.data.image_dataset import ImageDataset, transform
from iaa.data.image_io import UnreadableImage
from iaa.embed import PRECISIONS, embed_images, resolve_device
from iaa.models import Embedder
from iaa.provenance import (
    ImageRef,
    assemble,
    base_folder,
    check_names,
    data_hash,
    describe,
    distinct_images,
    fingerprint,
)
from iaa.retrieval.shards import Shards
from iaa.training.memory import keep_freed_memory


def command(
    spec: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SPEC")],
    out: Path,
    root: Path | None = None,
    model: str = "lite0",
    split: Literal["test", "val", "train", "all"] = "test",
    dim: int | None = None,
    weights: Path | None = None,
    pretrained: bool = True,
    pool: Literal["avg", "avg+max"] = "avg",
    size: int | None = None,
    test_size: Literal["small", "medium", "large"] | None = None,
    test_share: float | None = None,
    seed: int = 0,
    precision: Literal["fp32", "bf16", "fp16"] = "fp32",
    device: str = "auto",
    batch_size: int = 64,
    workers: int | None = None,
    save_every: int = 1024,
    on_bad_image: Literal["raise", "skip"] = "raise",
    restart: bool = False,
    force: bool = False,
) -> int:
    """Embed the images of a dataset. Killed or stopped, the same command continues where it was.

    Args:
        spec: cub, cars, sop, inshop, vehicleid, emoji, folder:DIR or table:FILE.
        out: The .safetensors to write; for the three test sets of vehicleid, a directory.
        root: The folder with the dataset's files.
        model: googlenet, resnet50, bn_inception, lite0, convnet, timm/NAME, or the directory of a run.
        split: Which images.
        dim: Outputs of a linear head; without it, the network's pooled features.
        weights: File for the network, with or without its head, instead of the published weights.
        pretrained: Fetch the published weights where no file is given.
        pool: How the network's last maps become features.
        size: Side of the images in pixels; without it, what the network was made for.
        test_size: Only this test set of vehicleid.
        test_share: Share of the classes to test on, for own data without a split (0.2).
        seed: Draws the test classes of own data, and weights that come from nowhere else.
        precision: What the network computes in; embeddings are always kept in fp32.
        device: auto, cpu, cuda, cuda:1, mps.
        batch_size: Images at once.
        workers: Processes that read images; without it, the free cores.
        save_every: Images between two saves, the most that a kill can cost.
        on_bad_image: Stop at an image that cannot be read, or skip and list it.
        restart: Throw away what a stopped run of another configuration has left.
        force: Replace files of another configuration.
    """
    targets = _targets(spec, out, split, test_size, root=root, seed=seed, test_share=test_share)
    check_names(targets.values())
    where = resolve_device(device)
    keep_freed_memory()
    torch.manual_seed(seed)
    options = {"dim": dim, "weights": weights, "pretrained": pretrained, "pool": pool, "size": size}
    network, name, source = open_network(model, options)
    base = base_folder(spec, root, targets.values())
    every = distinct_images(targets.values(), base)
    images = _images(every, network, on_bad_image)
    left_out = {error.path: error.reason for error in images.bad}
    names = {name: image for name, image in every.items() if image.path not in left_out}
    config = describe(network, name) | {
        "data": next(iter(targets.values())).name,
        "split": split,
        "data_sha256": data_hash(targets.values(), base, names),
        "precision": precision,
        "device": where.type,
        "batch_size": batch_size,
    }
    parts_folder = out / "embeddings.parts" if len(targets) > 1 else out.with_name(out.name + ".parts")
    wanted = [path for path in targets if force or not _is_there(path, config)]
    if not wanted:
        print(f"{out} already holds these embeddings: nothing to do (--force makes them again)")
        return 0
    parts = Shards(parts_folder, config, restart=restart)
    try:
        before, began = parts.done, time.monotonic()
        if before:
            print(f"continuing: {before:,} of {len(names):,} images are done", file=sys.stderr)
        with _progress(before, len(names)) as on_batch:
            embed_images(
                network.to(where),
                images,
                parts,
                batch_size=batch_size,
                device=where,
                precision=PRECISIONS[precision],
                workers=workers,
                save_every=save_every,
                on_batch=on_batch,
            )
        took = time.monotonic() - began
        rows, z, late = parts.collect()
        left_out |= dict(late)
        ids = list(names)
        place = {ids[row]: position for position, row in enumerate(rows.tolist())}
        origin = {"weights": source, "spec": spec, "root": str(base), "fingerprint": fingerprint(config)}
        for path in wanted:
            found = assemble(targets[path], base, place, z, config | origin)
            found.save(path)
            classes = len(found.class_names or ())
            print(f"wrote {path}: {len(found):,} images of {classes:,} classes, {z.shape[1]:,} numbers each")
        parts.remove()
    except KeyboardInterrupt:
        print(f"stopped by Ctrl-C; {_kept(parts, names)}", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        hint = "; --on-bad-image skip leaves it out" if isinstance(error, UnreadableImage) else ""
        raise ValueError(f"{error}{hint}; {_kept(parts, names)}") from error
    finally:
        parts.release()
    now = len(names) - before
    print(f"{now:,} images embedded now, {now / took:,.1f} a second ({precision} on {where.type})")
    for path_, reason in left_out.items():
        print(f"left out {path_}: {reason}")
    return 0


def _targets(spec: str, out: Path, split: str, test_size: str | None, **options: Any) -> dict[Path, Dataset]:
    """Every file to write and what belongs into it: one, save for the three test sets of vehicleid."""
    if split == "test":
        datasets = evaluations(spec, size=test_size, **options)
    elif split == "all" and spec == "vehicleid" and test_size is None:
        raise ValueError("vehicleid has three test sets: choose one with --test-size, or --split test")
    else:
        whole = load(spec, size=test_size, **options)
        datasets = {split: whole if split == "all" else whole.part(split)}
    for name, dataset in datasets.items():
        if not len(dataset):
            raise ValueError(f"{spec} has no images in its {name} part: choose another --split")
    if len(datasets) == 1:
        if out.suffix != ".safetensors":
            raise ValueError(f"--out must name a .safetensors file, got {out}")
        return dict.fromkeys([out], *datasets.values())
    if out.suffix or out.is_file():
        raise ValueError(
            f"{spec} has {len(datasets)} test sets, a file each: --out must name a directory, got {out} "
            "(or choose one with --test-size)"
        )
    return {out / f"embeddings-{name}.safetensors": dataset for name, dataset in datasets.items()}


def _images(every: dict[str, ImageRef], network: Embedder, on_bad_image: str) -> ImageDataset:
    boxes = np.stack([image.box for image in every.values()])
    try:
        return ImageDataset(
            [image.path for image in every.values()],
            np.zeros(len(every), dtype=np.int64),
            transform(False, **network.preprocessing),
            cache=False,  # each is seen once
            on_bad_image=on_bad_image,
            boxes=None if np.isnan(boxes).all() else boxes,
        )
    except UnreadableImage as error:
        raise ValueError(f"{error}; --on-bad-image skip leaves such images out") from error


def _is_there(path: Path, config: dict[str, Any]) -> bool:
    """Whether a file holds what would be made; one that holds anything else is in the way."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return False
    try:
        with safe_open(path, "pt") as file:
            meta = json.loads((file.metadata() or {}).get("meta", "{}"))
    except (SafetensorError, OSError, json.JSONDecodeError):
        meta = {}
    if meta.get("fingerprint") != fingerprint(config):
        raise ValueError(
            f"{path} exists and holds something else: --force replaces it, or name another --out"
        )
    return True


def _kept(parts: Shards, names: dict[str, ImageRef]) -> str:
    return f"{parts.done:,} of {len(names):,} images are kept, the same command continues there"


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f} images/s")


@contextmanager
def _progress(done: int, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with speed and time left on stderr, silent where that is no terminal."""
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), _Speed(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("embedding", total=total, completed=done)
        yield lambda images: bar.advance(task, images)
