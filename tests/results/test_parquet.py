"""Parquet files that carry their schema."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from locality.results.parquet import arrow_schema, arrow_table, frame_of, is_parquet, read_parquet, write_parquet
from locality.results.schema import CORE, Schema

TOY: Schema = {"model": str, "norm": str | None, "step": int, "f1": float, "found": bool, "right": bool | None, "map": bytes}


def toy() -> pd.DataFrame:
    columns = {
        "model": ["a", "b"],
        "norm": [None, "l2"],
        "step": [0, 1],
        "f1": [np.nan, 0.5],
        "found": [True, False],
        "right": pd.array([True, None], dtype="boolean"),
        "map": [b"\x00", b""],
    }
    return pd.DataFrame(columns)


def test_a_file_is_read_with_the_types_it_was_written_with(tmp_path: Path) -> None:
    path = tmp_path / "toy.parquet"
    rows = write_parquet(path, [arrow_table(toy(), TOY)], arrow_schema(TOY))
    back = frame_of(read_parquet(path))
    assert rows == 2
    assert pq.read_schema(path).remove_metadata() == arrow_schema(TOY)
    assert {name: str(kind) for name, kind in back.dtypes.items()} == {
        "model": str(pd.Series(["x"]).dtype),  # object before pandas 3
        "norm": "object",
        "step": "int64",
        "f1": "float64",
        "found": "bool",
        "right": "boolean",
        "map": "object",
    }
    assert back["norm"].tolist() == [None, "l2"]
    assert back["right"].isna().tolist() == [False, True]
    assert back["map"].tolist() == [b"\x00", b""]


@pytest.mark.parametrize(
    ("column", "values"),
    [("model", [None, "b"]), ("found", [None, True]), ("step", [0.5, 1.0]), ("step", ["one", "two"])],
)
def test_a_value_that_does_not_fit_the_schema_is_an_error(column: str, values: list[object]) -> None:
    wrong = toy().drop(columns=column).assign(**{column: pd.Series(values)})
    with pytest.raises(ValueError, match="does not fit its schema"):
        arrow_table(wrong, TOY)


def test_a_missing_column_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"does not fit its schema: .*f1"):
        arrow_table(toy().drop(columns="f1"), TOY)


def test_the_same_rows_are_the_same_bytes_in_however_many_pieces(tmp_path: Path) -> None:
    whole, half = tmp_path / "whole.parquet", tmp_path / "half.parquet"
    table = arrow_table(toy(), TOY)
    write_parquet(whole, [table], table.schema)
    write_parquet(half, [table.slice(0, 1), table.slice(1)], table.schema)
    assert pa.Table.equals(read_parquet(whole), read_parquet(half))
    write_parquet(half, [table], table.schema)
    assert whole.read_bytes() == half.read_bytes()


def test_a_damaged_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "toy.parquet"
    path.write_bytes(b"PAR1")
    assert not is_parquet(path)
    with pytest.raises(ValueError, match=r"is damaged .*: delete it and run the suite again"):
        read_parquet(path)


@pytest.mark.parametrize("name", CORE)
def test_core_tables_can_be_empty(name: str) -> None:
    schema = CORE[name]
    assert arrow_table(pd.DataFrame([], columns=list(schema)), schema).num_rows == 0
