"""The tables of docs/reproduction.md and docs/curvature.md, from the results of suites; `bench/documents.py` writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stored import RESULTS, markdown

from locality.report.aggregates import aggregate
from locality.report.findings import sentences
from locality.report.tables.build import TABLES as REPORTED
from locality.report.tables.formats import markdown_text
from locality.results.folder import read_results
from locality.results.results import Results, of_data
from locality.results.schema import SCORES
from locality.statistics import correlation, holm


def suite(name: str, data: str | None = None) -> Results:
    """Committed results of a suite, all or those on one data set."""
    results = read_results(RESULTS / name)
    return results if data is None else of_data(results, data)


def reported(table: str, name: str, data: str | None = None) -> Callable[[], str]:
    """A table of the report."""
    return lambda: markdown_text(REPORTED[table](suite(name, data))).strip()


def trends(name: str) -> Callable[[], str]:
    """Rank correlations of every score with accuracy over the standard models of a suite, Holm-corrected together."""

    def table() -> str:
        means = aggregate(suite(name))
        models = [model.name for model in means.models if model.kind == "standard"]
        accuracy = [means.accuracy[model].mean for model in models]
        found = {
            (method, score): correlation(accuracy, [means.scores[model, method, score].mean for model in models])
            for method in means.methods
            for score in SCORES
        }
        corrected = dict(zip(found, holm([one.spearman_p for one in found.values()]), strict=True))
        rows = [
            (method, *(f"{found[method, score].spearman:+.2f} (p = {corrected[method, score]:.2g})" for score in SCORES))
            for method in means.methods
        ]
        return markdown([f"over {len(models)} networks", *(score.replace("f1", "F1") for score in SCORES)], rows)

    return table


def faithfulness_of(name: str, models: Sequence[str]) -> Callable[[], str]:
    """The table of some models; each has ten rows."""

    def table() -> str:
        results = suite(name)
        few = results.with_tables(faithfulness=results["faithfulness"][results["faithfulness"]["model"].isin(models)])
        return markdown_text(REPORTED["faithfulness"](few)).strip()

    return table


def said_of(name: str, word: str, data: str) -> Callable[[], str]:
    """The findings on one data set that have a word, as a list of sentences."""
    return lambda: "\n".join(f"- {sentence}" for sentence in sentences(suite(name, data)) if word in sentence)


def said(name: str) -> Callable[[], str]:
    """The findings as a list of sentences."""
    return lambda: "\n".join(f"- {sentence}" for sentence in sentences(suite(name)))
