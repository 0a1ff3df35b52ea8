"""`Results`: the tables of a benchmark, by name. All that tables, figures and reports read."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from locality.errors import unknown_choice
from locality.results.gallery import GalleryImage, gallery_images
from locality.results.schema import CORE, Schema
from locality.types import Region

DTYPES: Mapping[Any, str] = {str: "str", int: "int64", float: "float64", bool: "bool", bool | None: "boolean"}


@dataclass(frozen=True, eq=False)
class Results(Mapping[str, pd.DataFrame]):
    """What one suite measured: a mapping of table names to DataFrames.

    `rows`, `models` and `faults` are always there. A table that a measurement adds is there if it has rows, so
    `"robust" in results` says whether robust accuracy was measured. Undefined numbers are `nan`.

    >>> results = Results("nothing measured")
    >>> list(results), "robust" in results, len(results.rows)
    (['rows', 'models', 'faults'], False, 0)
    """

    name: str
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        core = {name: self.tables[name] if name in self.tables else empty_table(schema) for name, schema in CORE.items()}
        measured = {name: table for name, table in self.tables.items() if name not in core and len(table)}
        object.__setattr__(self, "tables", core | measured)

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self.tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def __repr__(self) -> str:
        return f"<Results of {self.name}: {', '.join(f'{name} {len(table):,}' for name, table in self.tables.items())} rows>"

    # By identity, as for any object that holds large arrays: what is computed of results is cached under them.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    @property
    def rows(self) -> pd.DataFrame:
        """One row per model × image × method."""
        return self.tables["rows"]

    @property
    def models(self) -> pd.DataFrame:
        """One row per model."""
        return self.tables["models"]

    @property
    def faults(self) -> pd.DataFrame:
        """One row per thing that could not be measured."""
        return self.tables["faults"]

    @functools.cached_property
    def gallery(self) -> tuple[GalleryImage, ...]:
        """The images whose maps were kept."""
        return gallery_images(self.tables["gallery"]) if "gallery" in self.tables else ()

    @property
    def region(self) -> Region:
        """What locality was measured against: in an evaluation, or in the suite of a benchmark."""
        suite = self.provenance.get("suite")
        of_suite = suite["data"].get("region") if isinstance(suite, dict) and "data" in suite else None
        region: Region = self.provenance.get("region") or of_suite or "box"
        return region

    def with_tables(self, **tables: pd.DataFrame) -> Results:
        """A copy with some tables replaced or added."""
        return replace(self, tables={**self.tables, **tables})


def empty_table(schema: Schema) -> pd.DataFrame:
    """A table with the schema's columns and no rows."""
    return pd.DataFrame({column: pd.Series(dtype=DTYPES.get(kind, "object")) for column, kind in schema.items()})


def unfinished(results: Results) -> tuple[int, int] | None:
    """The number of units measured and planned, if some are still to be measured; else None."""
    units = results.provenance.get("units")
    if not isinstance(units, dict) or "planned" not in units:
        return None
    done = int(units.get("finished", 0)) + int(units.get("with faults", 0))
    return (done, int(units["planned"])) if done < int(units["planned"]) else None


def of_data(results: Results, data: str) -> Results:
    """The results on one of several data sets, whose F1 must not be mixed: it depends on the size of the boxes."""
    known = list(dict.fromkeys(map(str, results.models["data"])))
    models = set(results.models.loc[results.models["data"] == data, "model"])
    if not models:
        raise unknown_choice("data", data, known or ["none"])
    return replace(results, tables={name: _of_models(table, models) for name, table in results.items()})


def _of_models(table: pd.DataFrame, models: set[str]) -> pd.DataFrame:
    return table[table["model"].isin(models)].reset_index(drop=True) if "model" in table else table
