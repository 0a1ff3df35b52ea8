"""Figure 1.5 in miniature: are images of no class certified by a GloRo Net, and rejected by a Centroid Net?

    python bench/certified_outliers.py [--gloro tiny_liresnet] [--centroid tiny_centroid] [--count 200]
                                       [--out bench/results/certified_outliers.json]

Kinds: photographs of the `eval` split, uniform and Gaussian noise, single colours, the photographs inverted, with scrambled
phases (the same Fourier amplitudes), `photos` and `shapes`, resized to the models' input. GloRo: the share with a certified
radius above ℓ2 36/255, whatever the class. Centroid Net: the share that it abstains on, and that it decides with a radius
above 36/255. The areas under the curve compare the scores of photographs with those of each kind: GloRo's radius, −d₁/d₂
of the Centroid Net; ½ is chance, and below ½ the outliers are the surer ones.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from locality import load_dataset, load_model
from locality.certified.centroid import Centroid
from locality.certified.lipschitz import Lipschitz
from locality.files import write_atomically
from locality.intervals import wilson_interval

RADIUS = 36 / 255


def scrambled(images: Tensor, seed: int) -> Tensor:
    """The same amplitudes with the phases of noise, one for all channels; clipped to [0, 1]."""
    noise = torch.rand(len(images), 1, *images.shape[2:], generator=torch.Generator().manual_seed(seed))
    turn = torch.fft.fft2(noise)
    turn = turn / turn.abs()
    turn[..., 0, 0] = 1  # keeps the mean colour
    mixed: Tensor = torch.fft.ifft2(torch.fft.fft2(images) * turn).real
    return mixed.clamp(0, 1)


def images_of_no_class(spec: Any, count: int) -> dict[str, Tensor]:
    """Kinds of images that are made from no photograph of the classes, fitted to a model."""
    generator = torch.Generator().manual_seed(0)
    shape = (count, 3, *spec.input_size)
    return {
        "uniform noise": torch.rand(shape, generator=generator),
        "Gaussian noise": (0.5 + 0.25 * torch.randn(shape, generator=generator)).clamp(0, 1),
        "single colours": torch.rand(count, 3, 1, 1, generator=generator).expand(shape).contiguous(),
        "photos": _loaded("photos", spec, count),
        "shapes": _loaded("shapes", spec, count),
    }


def kinds(spec: Any, count: int) -> dict[str, Tensor]:
    """Photographs of the classes, and what no class has."""
    photographs = _loaded("tiny-imagenet", spec, count)
    return {
        "photographs of the classes": photographs,
        "inverted": 1 - photographs,
        "scrambled phases": scrambled(photographs, seed=0),
        **images_of_no_class(spec, count),
    }


def _loaded(name: str, spec: Any, count: int) -> Tensor:
    data = load_dataset(name, limit=count, spec=spec, max_box_share=1.0)
    return data.batch(range(len(data))).images


def share(flags: Tensor) -> list[float]:
    """The share with its 95 % interval."""
    low, high = wilson_interval(int(flags.sum()), len(flags))
    return [round(value, 4) for value in (float(flags.double().mean()), low, high)]


def area(inside: Tensor, outside: Tensor) -> float:
    labels = torch.cat([torch.ones(len(inside)), torch.zeros(len(outside))])
    return round(float(roc_auc_score(labels.numpy(), torch.cat([inside, outside]).numpy())), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gloro", default="tiny_liresnet")
    parser.add_argument("--centroid", default="tiny_centroid")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("bench/results/certified_outliers.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    gloro, centroid = load_model(arguments.gloro).eval(), load_model(arguments.centroid).eval()
    rows: dict[str, Any] = {}
    inside: tuple[Tensor, Tensor] | None = None
    for name, images in kinds(gloro.spec, arguments.count).items():
        first, second = Lipschitz()(gloro, images), Centroid("class")(centroid, images)
        scores = first.radius, -second.details["nearest"] / second.details["second"]
        inside = inside or scores
        rows[name] = {
            "images": len(images),
            "gloro: certified at 36/255": share(first.certifies(RADIUS)),
            "gloro: area under the curve": area(inside[0], scores[0]),
            "centroid: abstained": share(second.abstained),
            "centroid: decided, class certified at 36/255": share(second.certifies(RADIUS)),
            "centroid: area under the curve": area(inside[1], scores[1]),
        }
        print(name, json.dumps(rows[name]), flush=True)
    models = {"gloro": Path(arguments.gloro).stem, "centroid": Path(arguments.centroid).stem}
    write_atomically(arguments.out, json.dumps({"models": models, "kinds": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
