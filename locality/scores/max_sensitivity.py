"""Max-sensitivity (Yeh et al. 2019, Definition 3): by how much a map changes with noise that one hardly sees."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locality.attribution.all_at_once import attribute_all, names_of
from locality.errors import ArgumentError
from locality.model_calls import Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.randomness import image_seeds
from locality.model_calls.targets import Target, class_indices
from locality.scores.map_features import plain_maps
from locality.scores.similarity import similarity
from locality.types import PathMaps

RADIUS = 0.02  # of the ℓ∞ ball, about 5/255: the radius of the paper and of Captum
SAMPLES = 10
Attribute = Callable[[Tensor, Tensor], Mapping[str, PathMaps | Tensor]]  # images and classes ↦ maps by method


@dataclass(frozen=True, eq=False)
class MaxSensitivity:
    """The largest change of each image's map among some perturbations; `nan` where the map is undefined."""

    radius: float
    samples: int
    distance: Tensor  # N, max ‖Φ(x) − Φ(x + δ)‖
    relative: Tensor  # N, that divided by ‖Φ(x)‖; nan for a map of zeros
    chance: Tensor  # N, `relative` if the values were shuffled: √(2(1 − D·mean(Φ)²/‖Φ‖²)), about √2
    defined: Tensor  # N int64, perturbations whose map is defined; the others do not count


def max_sensitivity(
    model: Model,
    images: Tensor,
    methods: Sequence[str] = ("SM", "IG", "BIG"),
    target: Target = None,
    *,
    radius: float = RADIUS,
    samples: int = SAMPLES,
    seed: int = 0,
    bounds: Bounds = UNIT,
    **options: Any,
) -> dict[str, MaxSensitivity]:
    """max ‖Φ(x) − Φ(x + δ)‖ over `samples` perturbations, uniform in the ℓ∞ ball of this `radius`, for each method.

    Perturbed pixels are clipped to `bounds`, which keeps them in the ball. The class is that of the image itself: `target`,
    or the predicted one. Every perturbed image is attributed anew, with a boundary search where the method has one, so it
    costs `samples` + 1 times the maps; `options` go to `attribute_all`. Noise depends on the image and the seed only. Catch:
    a sampled maximum is below the true one and rises with the number of samples; and a constant map is perfectly stable.

    >>> squares = lambda images: images.flatten(1) ** 2
    >>> found = max_sensitivity(squares, torch.full((1, 1, 1, 1), 0.5).expand(1, 1, 1, 2), ["SM"], 0, radius=0.1)["SM"]
    >>> 0.1 < found.distance.item() < 0.2, found.relative.item() == found.distance.item()  # the map is (2x, 0)
    (True, True)
    """
    names = names_of(methods)
    pixels = working_copy(images, bounds)
    classes = class_indices(target, pixels)
    if classes is None:
        with open_model(model, pixels, bounds=bounds) as calls:
            classes = calls.logits(pixels).argmax(1)

    def attribute(points: Tensor, chosen: Tensor) -> Mapping[str, PathMaps | Tensor]:
        return attribute_all(model, points, names, chosen, seed=seed, bounds=bounds, **options)

    maps = attribute(pixels, classes)
    return sensitivity_of(attribute, pixels, maps, classes, radius=radius, samples=samples, seed=seed, bounds=bounds)


def sensitivity_of(
    attribute: Attribute,
    images: Tensor,
    maps: Mapping[str, PathMaps | Tensor],
    classes: Tensor,
    *,
    radius: float = RADIUS,
    samples: int = SAMPLES,
    seed: int = 0,
    bounds: Bounds = UNIT,
) -> dict[str, MaxSensitivity]:
    """Max-sensitivity of maps that are known already; `attribute` makes those of the perturbed images."""
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ArgumentError("samples", "a whole number of perturbations per image", samples)
    if not 0 < radius < math.inf:
        raise ArgumentError("radius", "a positive distance in pixels of [0, 1], such as 0.02", radius)
    plain = {name: plain_maps(value) for name, value in maps.items()}
    largest = {name: torch.full_like(value[:, 0, 0, 0], -1) for name, value in plain.items()}
    defined = {name: torch.zeros(len(images), dtype=torch.int64, device=images.device) for name in plain}
    generators = [torch.Generator().manual_seed(number) for number in image_seeds(images, seed)]
    for _ in range(samples):
        drawn = torch.stack([torch.rand(images.shape[1:], generator=generator) for generator in generators])
        points = images + radius * (2 * drawn - 1).to(images)
        points = points if bounds is None else points.clamp(*bounds)
        for name, value in attribute(points, classes).items():
            change = similarity(plain[name], plain_maps(value)).distance
            defined[name] += change.isfinite()
            largest[name] = torch.fmax(largest[name], change.to(largest[name]))
    found = {}
    for name, value in plain.items():
        distance = largest[name].masked_fill(defined[name] == 0, torch.nan)
        length = similarity(value, torch.zeros_like(value)).distance
        mean = value.detach().double().flatten(1).mean(1)
        spread = 1 - value[0].numel() * (mean / length.double()) ** 2
        chance = (2 * spread.clamp(min=0)).sqrt().to(distance)
        relative = distance / torch.where(length > 0, length, torch.nan)
        found[name] = MaxSensitivity(radius, samples, distance, relative, chance, defined[name])
    return found
