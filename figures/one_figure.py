"""What the scripts beside this file share: results in, one figure out."""

from __future__ import annotations

import argparse
from pathlib import Path

from locality.report.figures import draw_figures
from locality.runner.results import of_data
from locality.runner.store import read_results


def main(name: str, description: str | None, results: str = "bench/results/tiny") -> None:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", default=results, help="folder that `locality bench` wrote")
    parser.add_argument("--out", type=Path, default=Path("figures/rendered"), help="folder for the PNG and the PDF")
    parser.add_argument("--width", choices=["page", "column"], default="page", help="of a paper")
    parser.add_argument("--data", help="only what was measured on this one of several data sets")
    given = parser.parse_args()
    try:
        found = read_results(given.results)
        found = found if given.data is None else of_data(found, given.data)
        drawn = draw_figures(found, given.out, [name], width=given.width)
    except (ValueError, OSError) as error:
        parser.exit(2, f"{error}\n")
    for path in (path for paths in drawn.files.values() for path in paths):
        print(path)
