"""Tables as Parquet files that carry their schema, written whole or not at all, the same bytes for the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import UnionType
from typing import get_args

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from locality.files import file_hash, write_atomically
from locality.results.schema import Schema

ARROW_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(), bytes: pa.binary()}
GROUP_ROWS = 50_000  # of a merged file: enough to compress well, few enough to hold in memory


def arrow_schema(schema: Schema) -> pa.Schema:
    """The schema as Parquet stores it. A float is always nullable, because pandas writes nan as missing.

    >>> arrow_schema({"model": str, "correct": bool | None})
    model: string not null
    correct: bool
    """
    return pa.schema([_field(column, kind) for column, kind in schema.items()])


def _field(column: str, kind: type | UnionType) -> pa.Field:
    options = get_args(kind) or (kind,)
    value = next(option for option in options if option is not type(None))
    return pa.field(column, ARROW_TYPES[value], nullable=len(options) > 1 or value is float)


def arrow_table(frame: pd.DataFrame, schema: Schema) -> pa.Table:
    """The frame with the schema's types; ValueError where a column is missing or has another type."""
    wanted = arrow_schema(schema)
    try:
        return pa.Table.from_pandas(frame, schema=wanted, preserve_index=False).replace_schema_metadata(None)
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise ValueError(f"the table does not fit its schema: {_line(error)}") from error


def write_parquet(path: Path, pieces: Iterable[pa.Table], schema: pa.Schema) -> int:
    """Write the pieces of a table as one file, some rows at a time, and return the number of rows."""
    rows = 0

    def write(unfinished: Path) -> None:
        nonlocal rows
        with pq.ParquetWriter(unfinished, schema, compression="zstd") as writer:
            for group in _groups(pieces):
                rows += group.num_rows
                writer.write_table(group)

    write_atomically(path, write)
    return rows


def _groups(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The pieces joined until they have GROUP_ROWS rows."""
    waiting: list[pa.Table] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(one.num_rows for one in waiting) >= GROUP_ROWS:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def read_parquet(path: Path, sha256: str | None = None) -> pa.Table:
    """A table that `write_parquet` wrote; ValueError if it is damaged or its bytes have another sha256."""
    try:
        if sha256 is not None and file_hash(path) != sha256:
            raise OSError("its bytes are not those that were written")
        return pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"`{path}` is damaged ({_line(error)}): delete it and run the suite again") from error


def is_parquet(path: Path) -> bool:
    """Whether the file ends as a complete Parquet file does; its rows are not read."""
    try:
        pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False
    return True


def frame_of(table: pa.Table) -> pd.DataFrame:
    """The table for pandas: a nullable bool becomes "boolean" with <NA>, a missing text becomes None."""
    frame: pd.DataFrame = table.to_pandas()
    for column in table.schema:
        if column.nullable and pa.types.is_boolean(column.type):
            frame[column.name] = frame[column.name].astype("boolean")
        elif column.nullable and pa.types.is_string(column.type):
            texts = frame[column.name].astype(object)
            frame[column.name] = texts.where(texts.notna(), None)
    return frame


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
