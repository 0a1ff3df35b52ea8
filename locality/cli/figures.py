"""`locality figures`: draw the paper's figures from stored results, or the curves of training runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from locality.cli.options import check_folder
from locality.cli.options import method_names as names_between_commas
from locality.cli.printing import say
from locality.cli.table import OneData, read
from locality.errors import ArgumentError

FOLDERS_HELP = "Folder that `locality bench` or `locality eval --out` wrote, or folders that `locality train` wrote."
Folders = Annotated[list[Path], typer.Argument(metavar="RESULTS", help=FOLDERS_HELP)]
WHICH_HELP = (
    "Figures, separated by commas: 2.3, 2.4, 3.2, 3.3, 3.4, 3.5, B.1, B.2, distance, regions, extremes, "
    "histogram, means, "
    "vra, wci, trh, gap. Default: all that the results allow."
)


class FigureWidth(StrEnum):
    """The width of a figure: that of a page or of one column of a paper."""

    page = "page"
    column = "column"


class Score(StrEnum):
    """A locality score."""

    f1 = "f1"
    precision = "precision"
    recall = "recall"
    lift = "lift"


def figures(
    results: Folders,
    which: Annotated[str | None, typer.Option(help=WHICH_HELP)] = None,
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("figures"),
    prefix: Annotated[str, typer.Option(help="Beginning of the files' names, such as imagenet_.")] = "",
    formats: Annotated[str, typer.Option("--format", help="File formats, separated by commas: png, pdf, svg.")] = "png,pdf",
    width: Annotated[
        FigureWidth, typer.Option(help="Width of a page, or of one column of a paper with panels stacked.")
    ] = FigureWidth.page,
    data: OneData = None,
    methods: Annotated[
        str | None, typer.Option(help="Measured methods, separated by commas. Default: SM, IG and BIG if measured.")
    ] = None,
    score: Annotated[
        Score | None,
        typer.Option(help="Score of Figures 3.2, 3.4, distance, regions (default: lift), wci, trh and gap. Default: f1."),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(help='Attack of Figure 3.4, such as "linf 8/255". Default: the most frequent one.'),
    ] = None,
) -> None:
    """Draw the figures of the paper from the results of a benchmark, or the curves of training runs.

    Each of several data sets has its own figures. Several runs are drawn in one figure.
    """
    from locality.report.figures.training_curves import is_run

    check_folder(out)
    if any(map(is_run, results)):
        _check_omitted(which=which, prefix=prefix or None, data=data, methods=methods, score=score, attack=attack)
        _draw_runs(results, out, names_between_commas(formats), width)
        return
    if len(results) > 1:
        raise ArgumentError("RESULTS", "one folder of results, or one or several runs", " ".join(map(str, results)))
    from locality.report.figures.catalogue import draw_figures
    from locality.report.figures.options import figure_options

    tables = read(results[0], data)
    options = figure_options(
        tables, names_between_commas(methods) if methods else None, None if score is None else score.value, attack
    )
    names = names_between_commas(which) if which else None
    drawn = draw_figures(tables, out, names, names_between_commas(formats), width.value, options, prefix)
    for paths in drawn.files.values():
        say(", ".join(map(str, paths)))
    for name, reason in drawn.skipped.items():
        say(f"locality: Figure {name} skipped: {reason}", error=True)


def _check_omitted(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise ArgumentError(f"--{name}", "omitted for the curves of training runs", str(value))


def _draw_runs(folders: list[Path], out: Path, formats: list[str], width: FigureWidth) -> None:
    from locality.report.figures.files import write_figure
    from locality.report.figures.training_curves import read_run, training_curves_plot

    plot = training_curves_plot([read_run(folder) for folder in folders], width.value)
    say(", ".join(map(str, write_figure(plot.figure, out, "training", formats))))
