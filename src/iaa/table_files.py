"""Tables from csv and Parquet files, column by column, with errors that name file and line."""

import csv
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from iaa.errors import first_line, need

MAX_EXPANSION = 100
"""A Parquet file may hold this many times its own size once it is unpacked ..."""
ALWAYS_ALLOWED = 2**28
"""... or this many bytes, whichever is more."""


def read_csv(path: Path) -> dict[str, list[str]]:
    """The columns of a csv file with a header line; commas, semicolons or tabs, whichever the header uses."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            header = lines.readline()
            lines.seek(0)
            reader = csv.reader(lines, delimiter=max(",;\t", key=header.count))
            names = [name.strip() for name in next(reader, [])]
            rows = [(reader.line_num, row) for row in reader if row]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8: save it as such ({error})") from error
    except csv.Error as error:
        raise ValueError(f"{path} is not a csv table: {error}") from error
    if not names:
        raise ValueError(f"{path} is empty: expected the names of the columns in its first line")
    for line, row in rows:
        if len(row) != len(names):
            raise ValueError(f"{path}, line {line}: expected {len(names)} columns, got {len(row)}")
    return {name: [row[i] for _, row in rows] for i, name in enumerate(names)}


def open_parquet(path: Path) -> Any:
    """A ``pyarrow.parquet.ParquetFile`` that does not unpack to much more than its size.

    Text columns keep their dictionaries, so that a long text repeated a million times is held once.
    """
    parquet = need("pyarrow.parquet", extra="tables")
    arrow = need("pyarrow", extra="tables")
    with _named_errors(path):
        schema = parquet.read_schema(path)
        text = [field.name for field in schema if field.type in (arrow.string(), arrow.large_string())]
        file = parquet.ParquetFile(path, read_dictionary=text, page_checksum_verification=True)
    limit = max(MAX_EXPANSION * path.stat().st_size, ALWAYS_ALLOWED)
    declared = _declared_bytes(file.metadata)
    if declared > limit:
        raise ValueError(
            f"{path} would unpack to {declared:,} bytes, at most {limit:,} are allowed for a file of its size"
        )
    return file


def read_parquet(
    path: Path, *, skip: Collection[str] = (), only: list[str] | None = None
) -> tuple[Any, dict[str, list[Any]]]:
    """The Arrow table of a Parquet file, or ``only`` some of its columns; and these but ``skip`` as lists."""
    file = open_parquet(path)
    with _named_errors(path):
        table = file.read(columns=only, use_threads=False)
        columns = {name: _values(table.column(name)) for name in table.column_names if name not in skip}
    return table, columns


def parquet_batches(path: Path, column: str, *, rows: int) -> Iterator[Any]:
    """One column of a Parquet file in Arrow arrays of some rows each."""
    file = open_parquet(path)
    if column not in file.schema_arrow.names:
        raise ValueError(f"{path} lacks the column {column!r}, it has {', '.join(file.schema_arrow.names)}")
    with _named_errors(path):
        for batch in file.iter_batches(rows, columns=[column]):
            yield batch.column(0)


def _declared_bytes(metadata: Any) -> int:
    """Bytes that all values of all columns take, by the sizes and counts in the footer."""
    widths = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
    total = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            width = widths.get(column.physical_type, 8)  # of text at least the position of its end
            total += max(column.total_uncompressed_size, column.num_values * width)
    return total


def _values(column: Any) -> list[Any]:
    """A chunked column as Python values; those of a dictionary are made once and shared."""
    values: list[Any] = []
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            names = chunk.dictionary.to_pylist()
            values += [None if at is None else names[at] for at in chunk.indices.to_pylist()]
        else:
            values += chunk.to_pylist()
    return values


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Errors of Arrow as one line that names the file."""
    arrow = need("pyarrow", extra="tables")
    try:
        yield
    except (arrow.ArrowException, ValueError, OSError, OverflowError) as error:
        raise ValueError(f"{path} is truncated or not a Parquet file: {first_line(error)}") from error
