"""NumPy's ``.npy`` and ``.npz`` files, read without pickle and without trusting the sizes they declare."""

import ast
import io
import math
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_EXPANSION = 100
"""A compressed file may hold this many times its own size once it is unpacked ..."""
ALWAYS_ALLOWED = 2**28
"""... or this many bytes, whichever is more."""
_MAX_HEADER = 10_000
_PLAIN_TYPES = re.compile(r"[<>|=]?(f[248]|[iu][1248]|b1|[US][1-9]\d{0,6})")

Array = npt.NDArray[Any]


def read_npy_file(path: Path) -> Array:
    """The array of a ``.npy`` file, in private memory; its declared size must be that of the file."""
    try:
        with path.open("rb") as file:
            return _read_npy(file, path.stat().st_size)
    except (ValueError, EOFError) as error:
        raise ValueError(
            f"{path} is truncated, holds pickled objects, or is not an npy file: {error}"
        ) from error


def read_npz_file(path: Path, names: tuple[str, ...]) -> dict[str, Array]:
    """Those arrays of a ``.npz`` file that are there; nothing is unpacked before its size is known."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = {
                info.filename.removesuffix(".npy"): info
                for info in archive.infolist()
                if info.filename.endswith(".npy") and info.filename.removesuffix(".npy") in names
            }
            declared, size = sum(info.file_size for info in members.values()), path.stat().st_size
            limit = max(MAX_EXPANSION * size, ALWAYS_ALLOWED)
            if declared > limit:
                raise ValueError(
                    f"it would unpack to {declared:,} bytes, at most {limit:,} are allowed for its size"
                )
            return {name: _read_member(archive, info) for name, info in members.items()}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError) as error:
        raise ValueError(
            f"{path} is truncated, holds pickled objects, or is not an npz file: {error}"
        ) from error
    except (RuntimeError, AttributeError) as error:  # encrypted members; offsets that point nowhere
        raise ValueError(f"{path} is damaged: {error}") from error


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    with archive.open(info) as member:
        content = member.read(info.file_size)
    return _read_npy(io.BytesIO(content), len(content))


def _read_npy(file: io.BufferedIOBase, size: int) -> Array:
    """One array from a stream of ``size`` bytes."""
    if file.read(6) != b"\x93NUMPY":
        raise ValueError("it does not begin like an npy file")
    major = file.read(2)[:1]
    width = {b"\x01": 2, b"\x02": 4, b"\x03": 4}.get(major)
    if width is None:
        raise ValueError("its version is unknown")
    length = int.from_bytes(file.read(width), "little")
    if length > min(_MAX_HEADER, size):
        raise ValueError(f"its header declares {length:,} bytes")
    dtype, shape, fortran = _parse_header(file.read(length))
    data = size - 8 - width - length
    if math.prod(shape) * dtype.itemsize != data:
        raise ValueError(f"its header declares {dtype} of shape {shape}, but {max(data, 0):,} bytes follow")
    array = np.frombuffer(bytearray(file.read(data)), dtype=dtype)
    return array.reshape(shape, order="F" if fortran else "C")


def _parse_header(header: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    try:
        content = ast.literal_eval(header.decode("latin-1").strip())
        kind, shape, fortran = content["descr"], content["shape"], content["fortran_order"]
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        raise ValueError(f"its header cannot be read ({type(error).__name__})") from error
    if not isinstance(kind, str) or not _PLAIN_TYPES.fullmatch(kind):
        raise ValueError(f"it holds {kind!r}; only numbers and plain text are read")
    if not isinstance(shape, tuple) or len(shape) > 2 or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"it declares the shape {shape!r}; expected at most two dimensions")
    return np.dtype(kind), shape, bool(fortran)
