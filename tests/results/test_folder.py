"""Results in a folder: what is written is read back."""

from pathlib import Path

import pandas as pd
import pytest
from report.made_up_results import SCHEMAS, nothing_measured, small_results

from locality.results.folder import read_results, write_results, write_table
from locality.results.parquet import arrow_table
from locality.results.results import Results
from locality.results.schema import CORE


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    before = small_results()
    after = read_results(write_results(before, tmp_path, SCHEMAS))
    assert (after.name, after.provenance, set(after)) == (before.name, before.provenance, set(before))
    for name, table in before.items():
        same = (after[name] == table) | (after[name].isna() & table.isna())  # a missing text may be None or nan
        assert list(after[name]) == list(table)
        assert same.fillna(False).all(axis=None), name
    assert after.rows["correct"].dtype == "boolean"
    assert after.rows["found"].dtype == "bool"


def test_a_table_without_rows_leaves_no_file_and_removes_an_old_one(tmp_path: Path) -> None:
    write_results(small_results(), tmp_path, SCHEMAS)
    assert (tmp_path / "tables/faults.parquet").is_file()
    write_results(nothing_measured(), tmp_path, SCHEMAS)
    assert not (tmp_path / "tables/faults.parquet").exists()


def test_a_table_of_a_users_own_needs_its_schema_only_for_writing(tmp_path: Path) -> None:
    toy = pd.DataFrame({"image_id": ["a", "b"], "brightness": [0.5, float("nan")], "norm": ["l2", None]})
    schema = {"image_id": str, "brightness": float, "norm": str | None}
    write_results(Results("toy", {"toy": toy}), tmp_path, {"toy": schema})
    table = read_results(tmp_path)["toy"]
    assert table["brightness"].isna().tolist() == [False, True]
    assert table["norm"].tolist() == ["l2", None]


def test_units_of_different_schemas_are_not_merged(tmp_path: Path) -> None:
    one = arrow_table(pd.DataFrame({"a": [1]}), {"a": int})
    other = arrow_table(pd.DataFrame({"a": [1.0]}), {"a": float})
    with pytest.raises(ValueError, match="measured by different versions: run the suite into a new folder"):
        write_table(tmp_path, "toy", [one, other])
    assert list(tmp_path.iterdir()) == []
    assert write_table(tmp_path, "toy", [one, one]) == 2


def test_results_of_an_earlier_version_are_one_sentence(tmp_path: Path) -> None:
    results = small_results()
    models = results.models.rename(columns={"counterpart": "twin"})
    older = Results(results.name, {**results, "models": models}, results.provenance)
    schema = {("twin" if column == "counterpart" else column): kind for column, kind in CORE["models"].items()}
    folder = write_results(older, tmp_path / "older", {**SCHEMAS, "models": schema})
    with pytest.raises(ValueError, match="another version of locality: its table models has no column counterpart"):
        read_results(folder)
