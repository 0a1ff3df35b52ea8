"""Draw Figure 4.3 of the thesis in miniature: robust accuracy over the weight of TrH, and over η of RAT's labels.

python figures/training_sweeps.py [--results bench/results/training_sweeps/sweeps.json] [--out figures/rendered]

Every point is a training; what is drawn is its change against the base on the same images, with its 95 % interval.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from locality.report.figures.style import BLUE, GREY, INK, ORANGE

NUMBERS = {"robust": "accuracy under attack", "clean": "clean accuracy", "lift IG": "lift of IG"}
# Panel ↦ its sweeps with the name and the look of each.
PANELS: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "TrH on AT": (("trh_at", "AT + TrH", "o", BLUE),),
    "TrH on TRADES": (("trh_trades", "TRADES + TrH", "o", BLUE),),
    "soft labels on TRADES": (
        ("rat_labels", "rat_labels", "o", BLUE),
        ("smoothing", "label smoothing of equal strength", "s", ORANGE),
    ),
}


def draw_changes(axes: Axes, points: Sequence[Mapping[str, Any]], number: str, name: str, marker: str, colour: str) -> None:
    """One sweep in one panel; the base is the line at 0."""
    values = np.array([point["value"] for point in points])
    changes = [point["changes"][number] for point in points]
    middle = np.array([change["difference"] for change in changes])
    reach = np.abs(np.array([[change["low"], change["high"]] for change in changes]).T - middle)
    shift = 0.97 if marker == "o" else 1.03  # so that the intervals of two sweeps do not cover each other
    axes.errorbar(
        values * shift, middle, reach, marker=marker, markersize=4, color=colour, capsize=2, linewidth=1.2, label=name
    )
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_xscale("log")


def figure(results: Mapping[str, Any], path: Path) -> None:
    """Rows are numbers, columns are sweeps."""
    drawn, panels = plt.subplots(
        len(NUMBERS), len(PANELS), figsize=(9.5, 6.6), sharex="col", sharey="row", layout="constrained"
    )
    for column, (title, sweeps) in enumerate(PANELS.items()):
        for row, (number, name) in enumerate(NUMBERS.items()):
            axes = panels[row, column]
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(colors=INK, labelsize=9)
            for sweep, label, marker, colour in sweeps:
                draw_changes(axes, results["sweeps"][sweep]["points"][1:], number, label, marker, colour)
            if column == 0:
                axes.set_ylabel(f"change of {name}", color=INK, fontsize=9)
        panels[0, column].set_title(title, fontsize=10, color=INK)
        panels[-1, column].set_xlabel(results["sweeps"][sweeps[0][0]]["setting"], color=INK)
        if len(sweeps) > 1:
            values = [point["value"] for point in results["sweeps"][sweeps[0][0]]["points"][1:]]
            panels[-1, column].set_xticks(values, [f"{value:g}" for value in values])
            panels[-1, column].minorticks_off()
            panels[0, column].legend(frameon=False, fontsize=8)
    drawn.savefig(path, dpi=110)
    plt.close(drawn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("bench/results/training_sweeps/sweeps.json"))
    parser.add_argument("--out", type=Path, default=Path("figures/rendered"))
    given = parser.parse_args()
    figure(json.loads(given.results.read_text(encoding="utf-8")), given.out / "fig4_3.png")
    print(f"wrote {given.out / 'fig4_3.png'}")


if __name__ == "__main__":
    main()
