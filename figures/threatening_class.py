"""Draw Figure 5.4 of the thesis: how often the class nearest to the prediction changes between epochs of certified training.

python figures/threatening_class.py [--results bench/results/certified_study.json] [--out figures/rendered]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

COLOURS = ("#4c6a92", "#b07d2b", "#22674a")
INK = "#1f2933"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("bench/results/certified_study.json"))
    parser.add_argument("--out", type=Path, default=Path("figures/rendered"))
    arguments = parser.parse_args()
    threats = json.loads(arguments.results.read_text(encoding="utf-8"))["threatening_class"]
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for colour, (classes, one) in zip(COLOURS, threats.items(), strict=False):
        shares = [100 * share for share in one["changed"]]
        epochs = range(2, len(shares) + 2)
        axes.plot(epochs, shares, color=colour, marker="o", markersize=4, label=f"{classes} classes")
    axes.set_xlabel("epoch", color=INK)
    axes.set_ylabel("images with another threatening class\nthan one epoch before (%)", color=INK)
    axes.set_ylim(0, None)
    axes.legend(frameon=False, labelcolor="linecolor", reverse=True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(arguments.out / "fig5_4.png", dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    main()
