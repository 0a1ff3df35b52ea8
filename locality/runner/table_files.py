"""Tables as Parquet files with fixed types, written whole or not at all, the same bytes for the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from locality.files import write_atomically
from locality.runner.measurements import GALLERY_COLUMNS
from locality.runner.results import TABLES

STORED: dict[str, tuple[str, ...]] = {**TABLES, "gallery": GALLERY_COLUMNS}
INTEGERS = {"label", "prediction", "target", "crossed_to", "step", "layers", "height", "width"}
FLAGS = {"correct", "found", "clean", "robust"}
UNKNOWABLE = {"correct", "clean", "robust"}  # flags that may be missing: the model has no such class
TEXTS = {"model", "image_id", "method", "family", "training", "norm", "twin", "data", "weights_sha256", "attack", "pair"}
TEXTS |= {"noise", "layer", "search", "unit", "image_ids", "problem", "boxes"}
BYTES = {"image", "map"}
ROWS_TOGETHER = 50_000  # of a merged file: enough to compress well, little enough to hold


def schema_of(name: str) -> pa.Schema:
    """The types of a table's columns: the same in every shard, also where a column is empty."""
    return pa.schema([(column, _type(name, column)) for column in STORED[name]])


def _type(table: str, column: str) -> pa.DataType:
    if column in BYTES:
        return pa.binary()
    if column in TEXTS or (table == "gallery" and column in ("label", "prediction")):
        return pa.string()
    if column in FLAGS:
        return pa.bool_()
    return pa.int64() if column in INTEGERS else pa.float64()


def write_parquet(name: str, tables: Iterable[pa.Table], path: Path) -> int:
    """Write the pieces of a table as one file, some rows at a time; the number of rows."""
    schema = schema_of(name)
    rows = 0

    def write(unfinished: Path) -> None:
        nonlocal rows
        waiting: list[pa.Table] = []
        with pq.ParquetWriter(unfinished, schema, compression="zstd") as writer:
            for table in tables:
                waiting.append(table)
                rows += table.num_rows
                if sum(one.num_rows for one in waiting) >= ROWS_TOGETHER:
                    writer.write_table(pa.concat_tables(waiting))
                    waiting = []
            if waiting:
                writer.write_table(pa.concat_tables(waiting))

    write_atomically(path, write)
    return rows


def arrow_table(name: str, frame: pd.DataFrame) -> pa.Table:
    """The frame with the table's types."""
    return pa.Table.from_pandas(frame, schema=schema_of(name), preserve_index=False).replace_schema_metadata(None)


def read_parquet(name: str, path: Path) -> pa.Table:
    """A table that `write_parquet` wrote."""
    try:
        return pq.read_table(path, schema=schema_of(name))
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"`{path}` is damaged ({reason}): delete it and run the suite again") from error


def is_table(path: Path) -> bool:
    """Whether the file ends as Parquet files do, with a description of what is before it: a look, not a reading."""
    try:
        pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False
    return True


def frame_of(name: str, table: pa.Table) -> pd.DataFrame:
    """The table for pandas: flags that may be missing are nullable, texts that are missing are None."""
    frame: pd.DataFrame = table.to_pandas()
    for column in frame.columns:
        if column in UNKNOWABLE:
            frame[column] = frame[column].astype("boolean")
    if name == "models":
        for column in ("norm", "twin"):
            frame[column] = frame[column].astype(object).where(frame[column].notna(), None)
    return frame
