"""Draw where a GloRo Net and a Centroid Net decide on two moons (thesis, Figures 1.4 and 6.4): bench/certified_moons.py.

python figures/certified_moons.py [--results bench/results/certified_moons.npz] [--out figures/rendered]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

PANELS = {
    "gloro": "GloRo, ε = 0.1",
    "centroid": "Centroid Net, η = 0.2",
    "gloro_calibrated": "GloRo, abstains on 5 % of training points",
    "centroid_calibrated": "Centroid Net, abstains on 5 % of training points",
}
REGIONS = ListedColormap(["#d9d9d9", "#f3c6c2", "#c5dfd0"])  # abstention, class 0, class 1
CLASSES = ("#b02a20", "#22674a")
INK = "#1f2933"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("bench/results/certified_moons.npz"))
    parser.add_argument("--out", type=Path, default=Path("figures/rendered"))
    arguments = parser.parse_args()
    results = np.load(arguments.results)
    left, right, low, high = results["extent"]
    figure, panels = plt.subplots(2, 2, figsize=(9.5, 7.6), sharex=True, sharey=True, layout="constrained")
    for axes, (name, title) in zip(panels.ravel(), PANELS.items(), strict=True):
        regions = results[f"{name}_grid"].reshape(results["shape"])
        axes.imshow(regions, extent=(left, right, low, high), origin="lower", cmap=REGIONS, vmin=-1, vmax=1)
        for label, colour in enumerate(CLASSES):
            axes.scatter(*results["train"][results["labels"] == label].T, s=3, color=colour, linewidths=0)
        rejected = results[f"{name}_test"] < 0
        moved = results["moved"]
        axes.scatter(*results["test"][moved & ~rejected].T, s=14, facecolors="none", edgecolors=INK, linewidths=0.7)
        axes.scatter(*results["test"][rejected].T, s=16, color="#e6b800", edgecolors=INK, linewidths=0.5)
        axes.set_xlim(left, right)
        axes.set_ylim(low, high)
        axes.set_title(title, fontsize=10, color=INK)
        axes.set_xticks([])
        axes.set_yticks([])
    figure.text(
        0.5,
        -0.025,
        "grey: abstention · dots: training points · circles: decided outliers · yellow: rejected test points",
        ha="center",
        fontsize=9,
        color=INK,
    )
    figure.savefig(arguments.out / "fig6_4.png", dpi=100, bbox_inches="tight")
    plt.close(figure)


if __name__ == "__main__":
    main()
