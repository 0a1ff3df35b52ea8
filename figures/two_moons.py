"""Draw Two Moons (thesis, Figures 4.1 and 4.2) from the runs of bench/two_moons.py.

python figures/two_moons.py [--results bench/results/two_moons.json] [--out figures/rendered]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from sklearn.datasets import make_moons

KINDS = {"standard": ("Standard", "#3d85bd"), "top": ("Top", "#e08e2b"), "full": ("Full", "#2f855a")}
INK, PALE = "#1f2933", "#7b8794"
CLASSES = LinearSegmentedColormap.from_list("classes", ["#d4372c", "#ffffff", "#2f855a"])


def quiet(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(PALE)
    axes.tick_params(colors=INK, labelsize=9)


def regions(results: dict[str, Any], path: Path) -> None:
    """Figure 4.1: the training points, and the probability that each network of seed 0 gives to class 1."""
    settings = results["settings"]
    points, labels = make_moons(settings["points"], noise=settings["noise"], random_state=0)
    left, right, columns, low, high, rows = settings["grid"]
    figure, panels = plt.subplots(2, 3, figsize=(11, 5.6), sharex=True, sharey=True, layout="constrained")
    for line, batch_size in zip(panels, (50, 500), strict=True):
        for axes, (kind, (title, _)) in zip(line, KINDS.items(), strict=True):
            run = results["runs"][f"{kind} {batch_size} 0"]
            shares = np.array([int(digit, 16) / 15 for digit in run["regions"]]).reshape(rows, columns)
            axes.imshow(shares, extent=(left, right, low, high), origin="lower", cmap=CLASSES, alpha=0.45, aspect="equal")
            axes.contour(
                np.linspace(left, right, columns), np.linspace(low, high, rows), shares, [0.5], colors=INK, linewidths=1
            )
            for label, colour in ((0, "#b02a20"), (1, "#22674a")):
                axes.scatter(*points[labels == label].T, s=5, color=colour, linewidths=0)
            axes.set_title(
                f"{title}, batches of {batch_size}: {100 * run['attacked']:.1f} % under attack", fontsize=10, color=INK
            )
            axes.set_xticks([])
            axes.set_yticks([])
    figure.savefig(path, dpi=110)
    plt.close(figure)


def curves(results: dict[str, Any], path: Path) -> None:
    """Figure 4.2: sum and deviation of the Hessian's eigenvalues over the epochs; lines are means over the seeds."""
    settings = results["settings"]
    epochs = np.arange(0, settings["epochs"] + 1, settings["every"])
    figure, panels = plt.subplots(4, 4, figsize=(13, 10.5), sharex=True, layout="constrained")
    for row, (batch_size, measure, name) in enumerate(
        (size, measure, name) for size in (50, 500) for measure, name in (("sums", "sum"), ("deviations", "deviation"))
    ):
        for column, title in enumerate(results["columns"]):
            axes = panels[row, column]
            quiet(axes)
            for kind, (label, colour) in KINDS.items():
                names = [one for one in results["runs"] if one.startswith(f"{kind} {batch_size} ")]
                values = np.array([results["runs"][one][measure] for one in names])[:, :, column]
                axes.plot(epochs, values.T, color=colour, linewidth=0.6, alpha=0.3)
                axes.plot(epochs, np.exp(np.log(values).mean(0)), color=colour, linewidth=2, label=label)
            axes.set_yscale("log")
            if row == 0:
                axes.set_title(title if title == "all" else f"{title}{' (top)' if title == 'layer 3' else ''}", color=INK)
            if column == 0:
                axes.set_ylabel(f"{name} of eigenvalues\nbatches of {batch_size}", color=INK)
            if row == 3:
                axes.set_xlabel("epoch", color=INK)
    panels[0, 0].legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=90)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("bench/results/two_moons.json"))
    parser.add_argument("--out", type=Path, default=Path("figures/rendered"))
    arguments = parser.parse_args()
    results = json.loads(arguments.results.read_text(encoding="utf-8"))
    regions(results, arguments.out / "fig4_1.png")
    curves(results, arguments.out / "fig4_2.png")


if __name__ == "__main__":
    main()
