"""`locality figures`: the paper's figures, drawn from stored results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from locality.cli.options import check_folder
from locality.cli.options import method_names as names_between_commas
from locality.cli.printing import say
from locality.cli.table import OneData, Results, read


def figures(
    results: Results,
    which: Annotated[
        str | None, typer.Option(help="Figures, with commas: 2.3,2.4,3.2,3.3,3.4,3.5,B.1,B.2,distance; all if not given.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("figures"),
    forms: Annotated[str, typer.Option("--format", help="png, pdf and svg, with commas.")] = "png,pdf",
    width: Annotated[
        str, typer.Option(help="page, or column: panels below each other, for one column of a paper.")
    ] = "page",
    data: OneData = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods that were measured, with commas; SM,IG,BIG where they are, if not given.")
    ] = None,
    score: Annotated[
        str | None, typer.Option(help="f1, precision, recall or lift, for Figures 3.2, 3.4 and distance; f1 if not given.")
    ] = None,
    attack: Annotated[
        str | None, typer.Option(help='The budget of Figure 3.4, such as "linf 8/255"; the usual one if not given.')
    ] = None,
) -> None:
    """Draw the figures of the paper from the results of a benchmark, as PNG and PDF; of several data sets, each its own."""
    from locality.report.figures.catalogue import draw_figures
    from locality.report.figures.options import checked_choice

    check_folder(out)
    found = read(results, data)
    wanted = names_between_commas(which) if which else None
    choice = checked_choice(found, names_between_commas(methods) if methods else None, score, attack)
    drawn = draw_figures(found, out, wanted, names_between_commas(forms), width, choice)  # type: ignore[arg-type]
    for paths in drawn.files.values():
        say(", ".join(map(str, paths)))
    for name, reason in drawn.left_out.items():
        say(f"locality: Figure {name} is left out: {reason}", error=True)
