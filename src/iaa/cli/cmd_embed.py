"""``iaa embed``: embeddings of any dataset by any network, in files that `iaa evaluate` and others read."""

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from iaa.cli.network_option import open_network
from iaa.config import CONFIG_FILE
from iaa.progress import counting

if TYPE_CHECKING:
    import torch

    from iaa.data import Dataset
    from iaa.data.dataset import ClassSplit
    from iaa.data.image_dataset import ImageDataset
    from iaa.data.image_ref import ImageRef
    from iaa.models import Embedder
    from iaa.retrieval.embeddings import Embeddings
    from iaa.retrieval.shards import Shards


@dataclass(frozen=True)
class DataOptions:
    """Which images are embedded."""

    root: Path | None = None
    """The folder with the dataset's files."""
    split: Literal["test", "val", "train", "all"] = "test"
    """Which part of the dataset."""
    test_size: Literal["small", "medium", "large"] | None = None
    """Only this test set of vehicleid."""
    test_share: float | None = None
    """Share of the classes to test on, for your own data without a split (0.2)."""
    on_bad_image: Literal["raise", "skip"] = "raise"
    """Stop at an image that cannot be read, or skip and list it."""


@dataclass(frozen=True)
class NetworkOptions:
    """The network that embeds them."""

    model: str = "lite0"
    """googlenet, resnet50, bn_inception, lite0, convnet, timm/NAME, or a run directory."""
    dim: int | None = None
    """Outputs of a linear head; without it, the network's pooled features."""
    weights: Path | None = None
    """File for the network, with or without its head, instead of the published weights."""
    pretrained: bool = True
    """Fetch the published weights if no file is given."""
    pool: Literal["avg", "avg+max"] = "avg"
    """How the network's last feature maps are pooled."""
    size: int | None = None
    """Side of the images in pixels; without it, what the network was made for."""
    flip: bool = False
    """Embed every image as it is and mirrored, and take the mean: twice the time."""


@dataclass(frozen=True)
class ComputeOptions:
    """How it is computed."""

    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """What the network computes in; embeddings are always saved in fp32."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""
    batch_size: int = 64
    """Images at once."""
    devices: int = 1
    """Processes on this machine that embed together: a GPU each, or shares of the CPU's cores."""
    threads: int | None = None
    """Threads of each process on the CPU; without it, the cores are shared among the processes."""
    workers: int | None = None
    """Processes that read images, for each that embeds; without it, the free cores."""
    save_every: int = 1024
    """Images of a shard, the most that a kill can cost."""


DATA, NETWORK, COMPUTE = DataOptions(), NetworkOptions(), ComputeOptions()


def command(
    spec: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SPEC")],
    out: Path,
    data: Annotated[DataOptions, tyro.conf.arg(name="")] = DATA,
    network: Annotated[NetworkOptions, tyro.conf.arg(name="")] = NETWORK,
    compute: Annotated[ComputeOptions, tyro.conf.arg(name="")] = COMPUTE,
    seed: int = 0,
    restart: bool = False,
    force: bool = False,
) -> int:
    """Embed the images of a dataset. If it is killed or stopped, the same command continues.

    Started several times at once (by --devices, by torchrun, or by hand on machines that share the folder of
    --out), the processes share the work, and the file is the same as that of one.

    Args:
        spec: cub, cars, sop, inshop, vehicleid, emoji, folder:DIR or table:FILE.
        out: The .safetensors to write; for the three test sets of vehicleid, a directory.
        data: Which images are embedded.
        network: The network that embeds them.
        compute: How it is computed.
        seed: Draws the test classes of your own data, and weights that come from nowhere else.
        restart: Discard what a stopped run with another configuration has left.
        force: Replace files of another configuration.
    """
    import torch

    from iaa.allocator import keep_freed_memory
    from iaa.data.image_io import UnreadableImage
    from iaa.embed_processes import device_list, device_threads, process_device
    from iaa.provenance import (
        assemble,
        base_folder,
        check_names,
        data_hash,
        describe,
        distinct_images,
        fingerprint,
    )
    from iaa.retrieval.shards import Shards
    from iaa.runs import Run
    from iaa.terminal import printable

    known = Run(network.model).classes if (Path(network.model).expanduser() / CONFIG_FILE).is_file() else None
    if known is not None and data.test_share is not None:
        raise ValueError(f"--test-share: the run {network.model} has its test classes already, leave it out")
    targets = _targets(spec, out, data, seed, known)
    check_names(targets.values())
    device = process_device(compute.device)
    device_list(device, compute.devices)
    keep_freed_memory()
    torch.manual_seed(seed)
    options = asdict(network)
    flip = options.pop("flip")
    embedder, name, source = open_network(options.pop("model"), options)
    embedder.flip = flip
    base = base_folder(spec, data.root, targets.values())
    images = distinct_images(targets.values(), base)
    dataset = _dataset(images, embedder, data.on_bad_image)
    left_out = {error.path: error.reason for error in dataset.bad}
    images = {id: ref for id, ref in images.items() if ref.path not in left_out}
    config = describe(embedder, name) | {
        "data": next(iter(targets.values())).name,
        "split": data.split,
        "data_sha256": data_hash(targets.values(), base, images),
        "precision": compute.precision,
        "device": device.type,
        "batch_size": compute.batch_size,
    }
    wanted = [path for path in targets if force or not _exists(path, config)]
    if not wanted:
        print(f"{out} already holds these embeddings: nothing to do (--force makes them again)")
        return 0
    folder = out / "embeddings.parts" if len(targets) > 1 else out.with_name(out.name + ".parts")
    parts = Shards(
        folder,
        config,
        len(images),
        batch_size=compute.batch_size,
        save_every=compute.save_every,
        threads=device_threads(device, compute.devices) if compute.threads is None else compute.threads,
        restart=restart,
    )
    try:
        done_before, began = parts.done, time.monotonic()
        _embed(embedder, dataset, parts, compute, device)
        seconds = time.monotonic() - began
        writing = parts.finishing()
        if writing is None:
            print(f"another process has written {out}")
            return 0
        with writing:
            rows, z, unreadable = parts.collect()
            if not len(rows):
                raise ValueError("not one image could be read")
            left_out |= dict(unreadable)
            ids = list(images)
            row_of = {ids[row]: position for position, row in enumerate(rows.tolist())}
            origin = {"weights": source, "spec": spec, "root": str(base), "fingerprint": fingerprint(config)}
            for path in wanted:
                _write(assemble(targets[path], base, row_of, z, config | origin), path)
            parts.remove()
    except KeyboardInterrupt:
        print(f"stopped by Ctrl-C; {_kept(parts, len(images))}", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        hint = "; --on-bad-image skip leaves it out" if isinstance(error, UnreadableImage) else ""
        raise ValueError(f"{error}{hint}; {_kept(parts, len(images))}") from error
    finally:
        parts.release()
    embedded = len(images) - done_before
    speed = f"{embedded / seconds:,.1f} images per second ({compute.precision} on {device.type})"
    print(f"{embedded:,} images embedded now, {speed}")
    for image_path, reason in left_out.items():
        print(f"left out {printable(image_path)}: {reason}")
    return 0


def _embed(
    network: "Embedder",
    dataset: "ImageDataset",
    parts: "Shards",
    compute: ComputeOptions,
    device: "torch.device",
) -> None:
    from iaa.embed_processes import embed_on_devices

    if parts.done:
        print(f"continuing: {parts.done:,} of {len(dataset):,} images are done", file=sys.stderr)
    with counting(len(dataset), done=parts.done, rate="images/s") as bar:
        embed_on_devices(
            network,
            dataset,
            parts,
            devices=compute.devices,
            device=device,
            precision=compute.precision,
            workers=compute.workers,
            on_batch=bar.advance,
        )


def _write(data: "Embeddings", path: Path) -> None:
    data.save(path)
    classes = len(data.class_names or ())
    print(f"wrote {path}: {len(data):,} images of {classes:,} classes, {data.z.shape[1]:,} numbers each")


def _targets(
    spec: str, out: Path, options: DataOptions, seed: int, known: "ClassSplit | None"
) -> "dict[Path, Dataset]":
    """The files to write and the dataset of each: one, except for the three test sets of vehicleid.

    Classes ``known`` to the run that embeds stay in the part they were in, whatever the data holds now.
    """
    from iaa.data import evaluations, load

    split = options.split
    shared: Any = {"root": options.root, "seed": seed, "test_share": options.test_share}
    shared |= {"known": known}
    if split == "test":
        datasets = evaluations(spec, size=options.test_size, **shared)
    elif split == "all" and spec == "vehicleid" and options.test_size is None:
        raise ValueError("vehicleid has three test sets: choose one with --test-size, or --split test")
    else:
        dataset = load(spec, size=options.test_size, **shared)
        datasets = {split: dataset if split == "all" else dataset.part(split)}
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


def _dataset(images: "dict[str, ImageRef]", network: "Embedder", on_bad_image: str) -> "ImageDataset":
    import numpy as np

    from iaa.data.image_dataset import ImageDataset, transform
    from iaa.data.image_io import UnreadableImage
    from iaa.data.image_ref import box_array

    try:
        return ImageDataset(
            [ref.path for ref in images.values()],
            np.zeros(len(images), dtype=np.int64),
            transform(False, **network.preprocessing),
            cache=False,  # each is read once
            on_bad_image=on_bad_image,
            boxes=box_array(images.values()),
        )
    except UnreadableImage as error:
        raise ValueError(f"{error}; --on-bad-image skip leaves such images out") from error


def _exists(path: Path, config: dict[str, Any]) -> bool:
    """Whether a file holds what would be made; raises if it holds anything else."""
    from safetensors import SafetensorError, safe_open

    from iaa.provenance import fingerprint

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


def _kept(parts: "Shards", total: int) -> str:
    return f"{parts.done:,} of {total:,} images are kept, the same command continues there"
