"""Votes of noisy copies of an image, and the certificate that they give (Cohen et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from locality.certified.certificate import Certificate
from locality.certified.smoothed_model import draws
from locality.certified.smoothing import Smoothing, check_noise
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.randomness import image_seeds
from locality.progress import Progress
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

    >>> linear = lambda images: images.flatten(1)
    >>> votes(linear, torch.tensor([[[[1.0, 0.0]]]]), sigma=0.1, samples=50).tolist()
    [[50, 0]]
    """
    check_noise(sigma, samples=samples)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        generators = [torch.Generator().manual_seed(number) for number in image_seeds(pixels, seed)]
        return torch.stack(
            [_votes(calls, image[None], sigma, samples, g) for image, g in zip(pixels, generators, strict=True)]
        )


def certify_by_votes(
    model: Model | Calls, images: Tensor, settings: Smoothing, progress: Progress, bounds: Bounds, chunk: int | None
) -> Certificate:
    """What `Smoothing` states about the images; `probability` in the details is p̲."""
    pixels = working_copy(images, bounds)
    done, total = 0, len(pixels) * (settings.selection_samples + settings.samples)

    def count(passes: int) -> None:
        nonlocal done
        done += passes
        progress(done, total)

    count(0)
    chosen_classes, lower_bounds = [], []
    with open_model(model, pixels, chunk, bounds) as calls:
        for image, number in zip(pixels, image_seeds(pixels, settings.seed), strict=True):
            generator = torch.Generator().manual_seed(number)
            selection = _votes(calls, image[None], settings.sigma, settings.selection_samples, generator, count)
            chosen = int(selection.argmax())
            successes = int(_votes(calls, image[None], settings.sigma, settings.samples, generator, count)[chosen])
            chosen_classes.append(chosen)
            lower_bounds.append(clopper_pearson_lower(successes, settings.samples, settings.alpha))
    probability = torch.tensor(lower_bounds, dtype=torch.float64)
    prediction = torch.where(probability > 0.5, torch.tensor(chosen_classes), ABSTAINED)
    radius = settings.sigma * torch.special.ndtri(probability.clamp(min=0.5))
    failure = torch.full_like(radius, settings.alpha)
    return Certificate(prediction, radius, failure, norm="l2", details={"probability": probability})


def clopper_pearson_lower(successes: int, trials: int, alpha: float) -> float:
    """The p for which P[`successes` or more of `trials`] = `alpha`; it exceeds the true p with probability α at most.

    >>> round(clopper_pearson_lower(10_000, 10_000, 0.001), 6)  # 0.001^(1/10,000)
    0.999309
    """
    from scipy.stats import beta

    return float(beta.ppf(alpha, successes, trials - successes + 1)) if successes else 0.0


def _votes(
    calls: Calls,
    image: Tensor,
    sigma: float,
    samples: int,
    generator: torch.Generator,
    count: Callable[[int], None] = lambda passes: None,
) -> Tensor:
    """K counts for one image; the generator continues where it was."""
    totals = torch.zeros(0, dtype=torch.int64, device=image.device)
    for part in torch.zeros(samples, dtype=torch.int64).split(calls.chunk):
        logits = calls.logits(image + sigma * draws([generator], part, image))
        counts = logits.argmax(dim=1).bincount(minlength=logits.shape[1])
        totals = counts if len(totals) == 0 else totals + counts
        count(len(part))
    return totals
