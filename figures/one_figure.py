"""What the scripts beside this file share: results in, one figure out."""

from __future__ import annotations

import argparse
from pathlib import Path

from locality.report.figures import draw_figures
from locality.runner.store import read_results


def main(name: str, description: str | None, results: str = "bench/results/tiny") -> None:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", default=results, help="folder that `locality bench` wrote")
    parser.add_argument("--out", type=Path, default=Path("figures/rendered"), help="folder for the PNG and the PDF")
    parser.add_argument("--width", choices=["page", "column"], default="page", help="of a paper")
    given = parser.parse_args()
    for path in draw_figures(read_results(given.results), given.out, [name], width=given.width).files[name]:
        print(path)
