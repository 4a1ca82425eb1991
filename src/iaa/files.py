"""Files on disk: atomic writers, checked readers and a lock, for every file the package writes or reads."""

import errno
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

CHECKSUM = "sha256"
"""Key of the checksum in the metadata of a safetensors file."""
MAX_HEADER = 100_000_000
"""Bytes of the header of a safetensors file, as in the reference implementation."""
MAX_JSON = 200_000_000
"""Bytes of a JSON file that is read in one piece."""
Stamp = tuple[int, int]
"""Time of the last change of a file in nanoseconds, and its size in bytes."""
NO_FILE: Stamp = (-1, -1)
"""The stamp of what has no file: a row of vectors, or an image that is gone."""


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on success it replaces ``path`` atomically and durably.

    On any error the temporary file is removed and ``path`` is left as it was. A full disk or a missing
    permission is reported for ``path``, not for the temporary file.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except FileExistsError as error:
        raise OSError(f"cannot write {path}: {path.parent} is not a folder") from error
    except OSError as error:
        if error.errno is None:  # already in words
            raise
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file atomically; characters that UTF-8 cannot encode become question marks."""
    with replacing(path) as temporary:
        temporary.write_bytes(text.encode("utf-8", errors="replace"))


def write_json(path: str | Path, content: Mapping[str, Any] | list[Any]) -> None:
    """Write an indented JSON file atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_tensors(
    path: str | Path, tensors: Mapping[str, "Tensor"], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a ``.safetensors`` file atomically, with a checksum; equal content gives equal bytes."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = dict(metadata or {})
    header[CHECKSUM] = file_digest(plain, header).hexdigest()
    with replacing(path) as temporary:
        try:
            save_file(plain, temporary, header)
        except SafetensorError as error:
            reason = str(error).removeprefix("Error while serializing: ")
            full = "No space left" in reason or "os error 28" in reason
            code, text = (errno.ENOSPC, os.strerror(errno.ENOSPC)) if full else (errno.EIO, reason)
            raise OSError(code, text) from error
        _sort_header(temporary)


def read_tensors(
    path: str | Path, *, require_checksum: bool = False
) -> tuple[dict[str, "Tensor"], dict[str, str]]:
    """Tensors and metadata of a ``.safetensors`` file, in private memory and with the checksum verified.

    The file is not mapped: changing or truncating it afterwards has no effect on what was read. Declared
    sizes are checked against the file before anything is allocated. Other programs write files without a
    checksum: they are accepted unless it is required.
    """
    import torch

    path = Path(path)
    with open(path, "rb") as file:
        entries, metadata, size = _read_header(file, path)
        tensors: dict[str, Tensor] = {}
        for name, (kind, shape, begin, end) in entries.items():
            dtype = getattr(torch, kind)
            if math.prod(shape) * dtype.itemsize != end - begin:
                raise ValueError(f"{path} is damaged: the size of {name} does not match its shape {shape}")
            tensor = torch.empty(shape, dtype=dtype)
            file.seek(size + begin)
            if tensor.nbytes and file.readinto(raw_bytes(tensor)) != tensor.nbytes:
                raise ValueError(f"{path} is truncated: {name} is incomplete")
            tensors[name] = tensor
    expected = metadata.pop(CHECKSUM, None)
    if expected is None and require_checksum:
        raise ValueError(f"{path} is damaged: it has no checksum")
    if expected is not None and expected != file_digest(tensors, metadata).hexdigest():
        raise ValueError(f"{path} is damaged: its content does not match its checksum")
    return tensors, metadata


def read_json(path: str | Path, *, required: Iterable[str] = ()) -> dict[str, Any]:
    """A JSON file that holds an object with the ``required`` keys; errors name the file."""
    path = Path(path)
    if path.stat().st_size > MAX_JSON:
        raise ValueError(f"{path} is too large for a JSON file of this kind ({path.stat().st_size:,} bytes)")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    return parse_json(text, str(path), required=required)


def parse_json(text: str | bytes, source: str, *, required: Iterable[str] = ()) -> dict[str, Any]:
    """JSON text that holds an object with the ``required`` keys; errors name the ``source``."""
    try:
        content = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"{source} is not valid JSON: it is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{source} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{source} must hold a JSON object, got {type(content).__name__}")
    missing = [key for key in required if key not in content]
    if missing:
        raise ValueError(f"{source} is incomplete: it lacks {', '.join(missing)}")
    return content


class Lock:
    """A lock on a file, released when the process ends, however it ends; exclusive unless ``shared``."""

    def __init__(self, path: str | Path, *, shared: bool = False, make_folder: bool = True) -> None:
        """Take the lock, or raise ``BlockingIOError`` at once if another process holds it."""
        self.path = Path(path)
        if make_folder:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = open(self.path, "a+")  # noqa: SIM115 (held until release)
        try:
            self._take(shared)
        except OSError as error:
            self._file.close()
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(error.errno, "another process is using it", str(self.path)) from error
            raise

    def _take(self, shared: bool) -> None:
        try:
            import fcntl
        except ImportError:  # Windows has no such locks
            return
        fcntl.lockf(self._file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)

    def share(self) -> None:
        """From now on others may hold it too, if they share it."""
        self._take(shared=True)

    def release(self) -> None:
        """Give the lock up."""
        self._file.close()

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def tensors_digest(tensors: Mapping[str, "Tensor"]) -> str:
    """SHA-256 over names, types, shapes and bytes."""
    return file_digest(tensors, None).hexdigest()


def file_digest(tensors: Mapping[str, "Tensor"], metadata: Mapping[str, str] | None) -> "hashlib._Hash":
    """SHA-256 over the metadata and the tensors by name: the checksum of a file."""
    digest = hashlib.sha256(b"" if metadata is None else json.dumps(dict(metadata), sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        update_digest(digest, name, tensor.shape, [tensor])
    return digest


def update_digest(
    digest: "hashlib._Hash", name: str, shape: Sequence[int], chunks: Iterable["Tensor"]
) -> None:
    """Add a tensor, which may come in chunks."""
    for number, chunk in enumerate(chunks):
        if not number:
            digest.update(f"{name} {chunk.dtype} {tuple(shape)}\n".encode())
        digest.update(raw_bytes(chunk))


def raw_bytes(tensor: "Tensor") -> memoryview:
    """The bytes of a tensor, without a copy if it is contiguous and on the CPU."""
    import torch

    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}


def _read_header(
    file: IO[bytes], path: Path
) -> tuple[dict[str, tuple[str, tuple[int, ...], int, int]], dict[str, str], int]:
    """Entries (type, shape, begin, end), metadata, and where the data begins."""
    total = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if total < 8 or not 0 < length <= min(MAX_HEADER, total - 8):
        raise ValueError(f"{path} is truncated or not a safetensors file")
    header = parse_json(file.read(length), f"the header of {path}")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"{path} is damaged: its metadata must be text")
    entries = {}
    for name, entry in header.items():
        try:
            kind, shape, (begin, end) = _DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
            valid = all(type(number) is int and number >= 0 for number in (*shape, begin, end))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged: the entry of {name} cannot be read") from error
        if not valid or begin > end:
            raise ValueError(f"{path} is damaged: the entry of {name} cannot be read")
        if 8 + length + end > total:
            raise ValueError(f"{path} is truncated: {name} ends beyond the file")
        entries[name] = kind, shape, begin, end
    return entries, metadata, 8 + length


def _sort_header(path: Path) -> None:
    """Put the header's entries in alphabetical order: the library writes them in an arbitrary one."""
    with open(path, "r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        ordered = {"__metadata__": dict(sorted(header.pop("__metadata__", {}).items())), **header}
        text = json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= size:  # always, unless the library changes how it writes; then order is no loss
            file.seek(8)
            file.write(text.ljust(size))


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def file_stamp(path: str | None) -> Stamp:
    """The stamp of a file as it is now; ``NO_FILE`` if there is none."""
    if path is None:
        return NO_FILE
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return NO_FILE
    return status.st_mtime_ns, status.st_size
