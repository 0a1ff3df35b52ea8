"""Random logit (Sixt et al. 2020): a map of one class against the map of another class, drawn at random.

Maps that hardly change with the class show the image or the network as a whole, not the evidence for the class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locality.attribution.all_at_once import AT_BOUNDARY, attribute_all, names_of
from locality.boundary import find_boundary
from locality.errors import ArgumentError, needing
from locality.model_calls import Model, open_model
from locality.model_calls.checks import UNIT, Bounds, check_target, working_copy
from locality.model_calls.randomness import image_seeds
from locality.model_calls.targets import Target, class_indices
from locality.scores.map_features import plain_maps
from locality.scores.similarity import similarity
from locality.types import Boundary

WINDOW = 5  # pixels of SSIM, as in the paper's code
TAIL = 1  # per cent of a map's values beyond each end of the scale


@dataclass(frozen=True, eq=False)
class RandomLogit:
    """How similar the maps of two classes are; `nan` where either is undefined or constant."""

    other: Tensor  # N int64, the other class
    ssim: Tensor  # N, 1: the maps show the same, up to their sign
    ssim_chance: Tensor  # N, the other map with its pixels shuffled
    cosine: Tensor  # N, of the signed maps over all features
    cosine_chance: Tensor  # N, the expectation for shuffled features: D·mean(A)·mean(B)/(‖A‖‖B‖)


def random_logit(
    model: Model,
    images: Tensor,
    methods: Sequence[str] = ("SM", "IG", "BIG"),
    target: Target = None,
    boundary: Boundary | None = None,
    *,
    seed: int = 0,
    bounds: Bounds = UNIT,
    **options: Any,
) -> dict[str, RandomLogit]:
    """Each method's map of `target` (None: the predicted class) against that of one other class, uniformly drawn per image.

    `options` go to `attribute_all`. Costs the maps twice; the boundary is searched once. Small is good, but see the catch:
    logits of similar classes have similar evidence, and with two classes whose logits are opposite the right maps are
    opposite, which SSIM calls the same.

    >>> squares = lambda images: images.flatten(1) ** 2
    >>> found = random_logit(squares, torch.rand(1, 1, 3, 3), ["SM"], target=4)["SM"]
    >>> found.cosine.item(), found.other.item() != 4  # every logit has a pixel of its own
    (0.0, True)
    """
    names = names_of(methods)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, bounds=bounds) as calls:
        logits = calls.logits(pixels)
        if boundary is None and AT_BOUNDARY & set(names):
            boundary = find_boundary(calls, pixels, search=options.get("search", "fast"), seed=seed, bounds=bounds)
    classes = class_indices(target, pixels)
    classes = logits.argmax(1) if classes is None else classes
    check_target(classes, logits.shape[1])
    other = other_classes(pixels, classes, logits.shape[1], seed)
    first, second = (
        attribute_all(model, pixels, names, chosen, boundary, seed=seed, bounds=bounds, **options)
        for chosen in (classes, other)
    )
    return {name: between_classes(plain_maps(first[name]), plain_maps(second[name]), other, pixels, seed) for name in names}


def other_classes(images: Tensor, classes: Tensor, count: int, seed: int) -> Tensor:
    """N: for each image one of the `count` − 1 other classes, which depends on the image and the seed only."""
    if count < 2:
        raise ArgumentError("model", "one with two classes or more", count)
    generators = (torch.Generator().manual_seed(number) for number in image_seeds(images, seed))
    steps = [1 + int(torch.randint(count - 1, (), generator=generator)) for generator in generators]
    return (classes + torch.tensor(steps, device=classes.device)) % count


def between_classes(first: Tensor, second: Tensor, other: Tensor, images: Tensor, seed: int) -> RandomLogit:
    """Similarity of N×C×H×W maps of two classes of the same images.

    SSIM as in the paper's code: channels are summed, each map is scaled from its 1st to its 99th percentile to [0, 1], and
    the better of the map and its negative counts. Quantus flattens the maps first, so that its windows are pieces of rows.
    """
    one, two = (maps.detach().double().sum(1).cpu().numpy() for maps in (first, second))
    values = []
    for row, number in enumerate(image_seeds(images, seed)):
        order = np.random.default_rng(number).permutation(two[row].size)
        shuffled = two[row].ravel()[order].reshape(two[row].shape)
        values.append((flipped_ssim(one[row], two[row]), flipped_ssim(one[row], shuffled)))
    ssim = torch.tensor(values, dtype=torch.float32).reshape(-1, 2).to(first.device)
    flat = [maps.detach().double().flatten(1) for maps in (first, second)]
    lengths = flat[0].norm(dim=1) * flat[1].norm(dim=1)
    chance = flat[0].sum(1) * flat[1].mean(1) / torch.where(lengths > 0, lengths, torch.nan)
    return RandomLogit(other, ssim[:, 0], ssim[:, 1], similarity(first, second).cosine, chance.float())


def flipped_ssim(one: NDArray[Any], other: NDArray[Any]) -> float:
    """SSIM of two H×W maps, or of one and the negative of the other if that is larger; `nan` where either is constant.

    >>> ramp = np.arange(64.0).reshape(8, 8)
    >>> round(flipped_ssim(ramp, 1 - 2 * ramp), 6)
    1.0
    """
    with needing("`random_logit`"):
        from skimage.metrics import structural_similarity

    scaled = [_scaled(values) for values in (one, other, -other)]
    window = min(WINDOW, (min(one.shape) - 1) // 2 * 2 + 1)  # odd, and no larger than the image
    if window < 3 or any(values is None for values in scaled):
        return math.nan
    return max(float(structural_similarity(scaled[0], values, win_size=window, data_range=1.0)) for values in scaled[1:])


def _scaled(values: NDArray[Any]) -> NDArray[Any] | None:
    """In [0, 1] from the 1st to the 99th percentile; None where these are equal or the map is not finite."""
    if not np.isfinite(values).all():
        return None
    low, high = np.percentile(values, (TAIL, 100 - TAIL))
    return np.clip((values - low) / (high - low), 0, 1) if high > low else None
