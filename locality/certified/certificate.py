"""Certified radii by randomised smoothing (Cohen et al. 2019): how far nothing can move the smoothed decision.

Definition 13 of the thesis: F_σ(x) = argmax_c P[F(x + ε) = c], ε ~ N(0, σ²I).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from locality.certified.smoothing import check_noise, draws
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.randomness import image_seeds
from locality.progress import Progress

ABSTAINED = -1


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
        return torch.cat(
            [_votes(calls, image[None], sigma, samples, g) for image, g in zip(pixels, generators, strict=True)]
        )


@dataclass(frozen=True, eq=False)
class Certificate:
    """What is certain about the smoothed model: around image i, no offset shorter than radius[i] changes its class.

    Each statement is wrong with probability `alpha` at the most. Where the smoothed model abstains, `prediction` is −1 and
    the radius 0.
    """

    prediction: Tensor  # N int64, −1 where it abstains
    radius: Tensor  # N, ℓ2, in pixels of [0, 1]
    probability: Tensor  # N, the lower bound on the probability of the class
    sigma: float
    n0: int
    n: int
    alpha: float

    @property
    def abstained(self) -> Tensor:
        """N bool."""
        return self.prediction == ABSTAINED

    def holds(self, labels: Tensor, radius: float) -> Tensor:
        """N bool: classified correctly, and certainly so within `radius`; their share is the certified accuracy."""
        return (self.prediction == labels.to(self.prediction.device)) & ~self.abstained & (self.radius >= radius)


def certify(
    model: Model | Calls,
    images: Tensor,
    sigma: float = 0.25,
    n0: int = 100,
    n: int = 10_000,
    alpha: float = 0.001,
    *,
    seed: int = 0,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """CERTIFY of Cohen et al. 2019: R = σ·Φ⁻¹(p̲), p̲ the Clopper–Pearson lower bound on P[F(x + ε) = c]; p̲ ≤ ½ abstains.

    The class c is the most frequent of `n0` draws, p̲ comes from `n` others: the same draws for both would void the bound.
    The guarantee is about the smoothed decision (`votes`) with infinitely many draws, not about `model`.

    >>> certificate = certify(lambda images: 10 * images.flatten(1), torch.tensor([[[[0.9, 0.1]]]]), sigma=0.1, n=1000)
    >>> certificate.prediction.item(), round(certificate.radius.item(), 3)  # at most σ·Φ⁻¹(0.001^(1/1000)), with 1000 draws
    (0, 0.246)
    """
    check_noise(sigma, n0=n0, n=n)
    if not sigma > 0:
        raise ValueError(f"`sigma` must be positive to certify a radius, got {sigma!r}")
    if not 0 < alpha < 1:
        raise ValueError(f"`alpha` must be a probability of failure such as 0.001, got {alpha!r}")
    predictions, bounds_below = [], []
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        for place, (image, number) in enumerate(zip(pixels, image_seeds(pixels, seed), strict=True)):
            generator = torch.Generator().manual_seed(number)
            chosen = int(_votes(calls, image[None], sigma, n0, generator).argmax())
            count = int(_votes(calls, image[None], sigma, n, generator)[0, chosen])
            predictions.append(chosen)
            bounds_below.append(clopper_pearson_lower(count, n, alpha))
            if progress is not None:
                progress(place + 1, len(images))
    below = torch.tensor(bounds_below, dtype=torch.float64)
    certain = below > 0.5
    radius = sigma * torch.special.ndtri(below.clamp(min=0.5))
    prediction = torch.where(certain, torch.tensor(predictions), ABSTAINED)
    where = images.device
    return Certificate(prediction.to(where), radius.float().to(where), below.float().to(where), sigma, n0, n, alpha)


def clopper_pearson_lower(successes: int, trials: int, alpha: float) -> float:
    """The p that makes `successes` or more of `trials` just as likely as `alpha`: below the true one but with probability α.

    >>> round(clopper_pearson_lower(10_000, 10_000, 0.001), 6)  # 0.001^(1/10,000)
    0.999309
    """
    from scipy.stats import beta

    return float(beta.ppf(alpha, successes, trials - successes + 1)) if successes else 0.0


def _votes(calls: Calls, image: Tensor, sigma: float, samples: int, generator: torch.Generator) -> Tensor:
    """1×K counts for one image; its generator goes on where it was."""
    counts = torch.zeros(0, dtype=torch.int64, device=image.device)
    for part in torch.zeros(samples, dtype=torch.int64).split(calls.chunk):
        logits = calls.logits(image + sigma * draws([generator], part, image))
        seen = logits.argmax(dim=1).bincount(minlength=logits.shape[1])
        counts = seen if len(counts) == 0 else counts + seen
    return counts[None]
