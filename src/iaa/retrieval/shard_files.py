"""The files of shards: ``START-STOP.safetensors`` with row numbers, embeddings and unreadable images."""

import json
import re
from pathlib import Path

import torch
from torch import Tensor

from iaa.files import read_tensors, write_tensors

UnreadableImages = list[tuple[str, str]]
"""Path and reason of each image that could not be read."""


def shard_file(folder: Path, start: int, stop: int) -> Path:
    """The file of a range of rows."""
    return folder / f"{start:09d}-{stop:09d}.safetensors"


def list_shards(folder: Path) -> list[tuple[int, int]]:
    """The ranges that have a file, in order."""
    names = (re.fullmatch(r"(\d+)-(\d+)\.safetensors", file.name) for file in folder.glob("*-*.safetensors"))
    return sorted((int(name[1]), int(name[2])) for name in names if name is not None)


def write_shard(folder: Path, start: int, stop: int, rows: Tensor, z: Tensor, bad: UnreadableImages) -> None:
    """Write a shard atomically."""
    write_tensors(shard_file(folder, start, stop), {"rows": rows, "z": z}, {"bad": json.dumps(bad)})


def read_shard(path: Path) -> tuple[Tensor, Tensor, UnreadableImages]:
    """Row numbers, embeddings and unreadable images; raises if the file is damaged."""
    tensors, header = read_tensors(path, require_checksum=True)
    try:
        rows, z = tensors["rows"], tensors["z"]
        bad = [(str(name), str(reason)) for name, reason in json.loads(header["bad"])]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if rows.dtype != torch.int64 or rows.ndim != 1 or z.dtype != torch.float32 or z.ndim != 2:
        raise ValueError(f"{path} is damaged: it holds {rows.dtype} rows and {z.dtype} vectors")
    return rows, z, bad
