"""Figure 1.5 in miniature: images of no class that a certified network decides, with the class and the certified radius.

    python figures/certified_outliers.py [--model tiny_liresnet] [--out figures/rendered]

Noise, single colours and `shapes`, the first images of each kind of `bench/certified_outliers.py`. A radius above ℓ2 36/255
is printed bold: at every point nearer than that, the network decides for the same class.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import matplotlib as mpl
import torch

mpl.use("Agg")
import matplotlib.pyplot as plt

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))  # whose kinds of images are drawn

from certified_outliers import RADIUS, images_of_no_class

from locality import load_model
from locality.certified.lipschitz import Lipschitz
from locality.imagenet_classes import class_word

COLUMNS = 7
DRAWN = ("uniform noise", "Gaussian noise", "single colours", "shapes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny_liresnet")
    parser.add_argument("--out", type=Path, default=Path("figures/rendered"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model(arguments.model)
    kinds = {kind: images for kind, images in images_of_no_class(model.spec, COLUMNS).items() if kind in DRAWN}
    figure, axes = plt.subplots(len(kinds), COLUMNS, figsize=(1.25 * COLUMNS, 1.6 * len(kinds)))
    for row, (kind, images) in zip(axes, kinds.items(), strict=True):
        certificate = Lipschitz()(model, images)
        row[0].set_ylabel(kind, fontsize=9)
        for place, image, prediction, radius in zip(row, images, certificate.prediction, certificate.radius, strict=False):
            place.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
            title = class_word(model.spec.classes[int(prediction)])
            weight = "bold" if float(radius) > RADIUS else "normal"
            place.set_title(f"{title}\n{255 * float(radius):.0f}/255", fontsize=7, fontweight=weight)
        for place in row:
            place.set_xticks([])
            place.set_yticks([])
    figure.tight_layout()
    figure.savefig(arguments.out / "fig1_5.png", dpi=100)


if __name__ == "__main__":
    main()
