"""`locality report`: the results of a benchmark as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from locality.cli.options import check_file
from locality.cli.printing import say
from locality.cli.table import OneData, Results, read


def report(
    results: Results,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    data: OneData = None,
) -> None:
    """Write one HTML file with summary, figures, sortable tables and an image gallery. It needs no network."""
    from locality.report.page.html import write_report

    check_file(out)
    path = write_report(read(results, data), out)
    say(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")
