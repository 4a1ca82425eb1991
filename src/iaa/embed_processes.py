"""Embed with several processes: one per device, each of which takes shards that nobody else works on."""

import logging
import multiprocessing
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from iaa.allocator import keep_freed_memory
from iaa.data.image_dataset import ImageDataset
from iaa.embed import PRECISIONS, embed_images, resolve_device
from iaa.retrieval.shards import Shards

_log = logging.getLogger("iaa")


def process_device(name: str) -> torch.device:
    """A device by name; of several processes that `torchrun` started, each takes a GPU of its own."""
    device = resolve_device(name)
    if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
        return resolve_device(f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}")
    return device


def device_threads(device: torch.device, devices: int) -> int:
    """Threads of each of several processes on this machine: on the CPU they share the cores."""
    return max(1, torch.get_num_threads() // (devices if device.type == "cpu" else 1))


def device_list(device: torch.device, devices: int) -> list[torch.device]:
    """The device of each process: GPUs from the first on, or the one there is, again and again."""
    if devices < 1:
        raise ValueError(f"devices must be 1 or more, got {devices}")
    if device.type != "cuda" or devices == 1:
        return [device] * devices
    if device.index not in (None, 0):
        raise ValueError(f"several devices are the first ones: choose device cuda, not {device}")
    if devices > torch.cuda.device_count():
        raise ValueError(f"there are {torch.cuda.device_count()} GPUs here, not {devices}")
    return [torch.device("cuda", number) for number in range(devices)]


def embed_on_devices(
    model: nn.Module,
    images: ImageDataset,
    parts: Shards,
    *,
    devices: int = 1,
    device: torch.device,
    precision: str = "fp32",
    workers: int | None = None,
    on_batch: Callable[[int], None] = lambda images: None,
) -> None:
    """Like ``embed_images``, with ``devices`` processes on this machine.

    A process that is killed costs its shard, which another one makes again.
    """
    first, *others = device_list(device, devices)
    with _running(model, images, [_Job.of(parts, other, precision, workers) for other in others]):
        embed_images(
            model.to(first),
            images,
            parts,
            device=first,
            precision=PRECISIONS[precision],
            workers=workers,
            on_batch=on_batch,
        )


@dataclass(frozen=True)
class _Job:
    """What another process is to do."""

    folder: Path
    config: dict[str, Any]
    total: int
    batch_size: int
    device: str
    precision: str
    workers: int | None

    @classmethod
    def of(cls, parts: Shards, device: torch.device, precision: str, workers: int | None) -> "_Job":
        described = parts.folder, parts.config, parts.total, parts.batch_size
        return cls(*described, str(device), precision, workers)


@contextmanager
def _running(model: nn.Module, images: ImageDataset, jobs: list[_Job]) -> Iterator[None]:
    """Processes that do the jobs; on an error here they are ended.

    They read the model from a file: if it went through the pipe that starts a process, one that is killed
    before it has read everything would leave this one waiting for ever.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        content = Path(folder) / "model.pickle"
        if jobs:
            content.write_bytes(pickle.dumps((model, images)))
        processes = [context.Process(target=_work, args=(job, content, os.getpid())) for job in jobs]
        for process in processes:
            process.start()
        try:
            yield
            for process in processes:
                process.join()
        finally:
            for process in processes:
                process.terminate()
                process.join()
    for number, process in enumerate(processes, 2):
        if process.exitcode:
            _log.warning(
                "process %d of %d ended early (exit code %d): the others made its embeddings",
                number,
                len(processes) + 1,
                process.exitcode,
            )


def _work(job: _Job, content: Path, parent: int) -> None:
    def stop_if_orphaned(images: int) -> None:
        if os.getppid() != parent:
            raise SystemExit(1)

    if not (job.folder / "config.json").exists():
        return  # others had finished before this process started
    keep_freed_memory()
    try:
        model, images = pickle.loads(content.read_bytes())  # made by the process that started this one
        parts = Shards(job.folder, job.config, job.total, batch_size=job.batch_size)
        try:
            device = torch.device(job.device)
            embed_images(
                model.to(device),
                images,
                parts,
                device=device,
                precision=PRECISIONS[job.precision],
                workers=job.workers,
                on_batch=stop_if_orphaned,
            )
        finally:
            parts.release()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except (OSError, ValueError) as error:
        print(f"note: a process on {job.device} stopped: {error}", file=sys.stderr)
        raise SystemExit(1) from None
