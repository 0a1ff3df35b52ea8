"""The report inside a notebook."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from html import escape
from pathlib import Path

from locality.errors import ArgumentTypeError
from locality.report.findings.verdicts import answer
from locality.report.page.html import report_page, write_report
from locality.results.folder import read_results
from locality.results.results import Results
from locality.runner.evaluation import Evaluation

HEIGHT = 900  # pixels


@dataclass(frozen=True, eq=False)
class HtmlReport:
    """A report. A notebook displays the page in a frame; `save` writes it."""

    results: Results

    @functools.cached_property
    def page(self) -> str:
        """The page, complete in itself."""
        return report_page(self.results)

    def save(self, path: str | Path) -> Path:
        """Write the page."""
        return write_report(self.results, Path(path))

    def __repr__(self) -> str:
        return f"<HtmlReport of {self.results.name}: {answer(self.results)}>"

    def _repr_html_(self) -> str:
        # Sandboxed: the page's script runs, but cannot reach the notebook.
        return (
            f'<iframe srcdoc="{escape(self.page)}" title="{escape(self.results.name)}" '
            f'sandbox="allow-scripts allow-downloads" style="width: 100%; height: {HEIGHT}px; border: 1px solid #8888">'
            "</iframe>"
        )


def html_report(results: Evaluation | Results | str | Path) -> HtmlReport:
    """The report on what `evaluate` returned, or on the folder that `locality bench` or `locality eval --out` wrote.

    >>> html_report(Results("nothing measured"))
    <HtmlReport of nothing measured: Locality was not measured.>
    """
    if isinstance(results, Evaluation):
        return HtmlReport(results.results)
    if isinstance(results, str | Path):
        return HtmlReport(read_results(results))
    if not isinstance(results, Results):
        raise ArgumentTypeError("results", "an Evaluation, Results or a folder of results", type(results).__name__)
    return HtmlReport(results)
