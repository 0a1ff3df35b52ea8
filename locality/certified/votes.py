"""Votes of noisy copies of an image: how many of them the model puts into each class."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from locality.certified.smoothed_model import draws
from locality.certified.smoothing import check_noise
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.decisions import decisions
from locality.model_calls.randomness import image_seeds
from locality.types import ABSTAINED


def votes(
    model: Model | Calls,
    images: Tensor,
    sigma: float = 0.25,
    samples: int = 100,
    *,
    seed: int = 0,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> Tensor:
    """N×K: how many of the noisy copies of each image fall into each class; the argmax is Definition 13's F_σ.

    Copies on which the model abstains are in no class.

    >>> linear = lambda images: images.flatten(1)
    >>> votes(linear, torch.tensor([[[[1.0, 0.0]]]]), sigma=0.1, samples=50).tolist()
    [[50, 0]]
    """
    check_noise(sigma, samples=samples)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        generators = [torch.Generator().manual_seed(number) for number in image_seeds(pixels, seed)]
        return torch.stack(
            [
                count_votes(model, calls, image[None], sigma, samples, generator)[:-1]
                for image, generator in zip(pixels, generators, strict=True)
            ]
        )


def count_votes(
    model: Model | Calls,
    calls: Calls,
    image: Tensor,
    sigma: float,
    samples: int,
    generator: torch.Generator,
    count: Callable[[int], None] = lambda passes: None,
) -> Tensor:
    """K counts for one image, and how often the model abstains; the generator continues where it was."""
    totals = torch.zeros(0, dtype=torch.int64, device=image.device)
    for part in torch.zeros(samples, dtype=torch.int64).split(calls.chunk):
        logits = calls.logits(image + sigma * draws([generator], part, image))
        chosen = decisions(model, logits)
        counts = torch.where(chosen == ABSTAINED, logits.shape[1], chosen).bincount(minlength=logits.shape[1] + 1)
        totals = counts if len(totals) == 0 else totals + counts
        count(len(part))
    return totals
