"""The tables of a benchmark. To add one, write a file beside this one and add a line to TABLES."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from locality.errors import unknown_choice
from locality.report.aggregates import NotMeasuredError
from locality.report.tables.certified import certified_table
from locality.report.tables.curvature import curvature_table
from locality.report.tables.faithfulness import faithfulness_table
from locality.report.tables.faults import faults_table
from locality.report.tables.generic import generic_table
from locality.report.tables.localisation import localisation_table
from locality.report.tables.locality import locality_table
from locality.report.tables.overview import overview_table
from locality.report.tables.pairs import pairs_table
from locality.report.tables.regions import region_tests_table, regions_table
from locality.report.tables.removal import removal_table, sensitivity_table
from locality.report.tables.robust import robust_table
from locality.report.tables.searches import searches_table
from locality.report.tables.similarity import similarity_table
from locality.report.tables.table import Table
from locality.results.results import Results

TableFunction = Callable[[Results], Table]

TABLES: dict[str, TableFunction] = {
    "overview": overview_table,
    "locality": locality_table,
    "pairs": pairs_table,
    "robust": robust_table,
    "regions": regions_table,
    "region_tests": region_tests_table,
    "certified": certified_table,
    "similarity": similarity_table,
    "searches": searches_table,
    "faithfulness": faithfulness_table,
    "removal": removal_table,
    "sensitivity": sensitivity_table,
    "localisation": localisation_table,
    "curvature": curvature_table,
    "faults": faults_table,
}
# Tables of results that need no generic table: TABLES or figures show them.
LAID_OUT = {
    *TABLES,
    "rows",
    "models",
    "model_free",
    "gallery",
    "layer_randomisation",
    "curvature_models",
    "curvature_images",
}


def tables(results: Results, which: Sequence[str] | None = None) -> tuple[Table, ...]:
    """The named tables, or all that were measured. A name that is unknown or was not measured is an error.

    >>> tables(Results("nothing measured"))
    ()
    """
    functions = table_functions(results)
    for name in which or ():
        if name not in functions:
            raise unknown_choice("which", name, functions)
    built = []
    for name in which or functions:
        try:
            built.append(functions[name](results))
        except NotMeasuredError:
            if which:
                raise
    return tuple(built)


def table_functions(results: Results) -> dict[str, TableFunction]:
    """TABLES, and before the faults a generic table for every table of the results that has no layout of its own."""
    generic: dict[str, TableFunction] = {name: partial(generic_table, name=name) for name in results if name not in LAID_OUT}
    return {name: function for name, function in TABLES.items() if name != "faults"} | generic | {"faults": TABLES["faults"]}
