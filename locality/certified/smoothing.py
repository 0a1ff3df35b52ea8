"""The certificate of randomised smoothing (Cohen et al. 2019; section 3.3.3 of the thesis).

Definition 13 of the thesis: F_σ(x) = argmax_c P[F(x + ε) = c], ε ~ N(0, σ²I). The certificate is about F_σ, the vote of
infinitely many noisy copies, not about the model F itself; `votes` gives the vote of finitely many, `SmoothedModel` the mean
of the outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from locality.errors import ArgumentError, needing
from locality.progress import Progress, no_progress
from locality.toml_settings import setting
from locality.types import ABSTAINED

if TYPE_CHECKING:
    from torch import Tensor

    from locality.certified.certificate import Certificate
    from locality.model_calls import Calls, Model
    from locality.model_calls.checks import Bounds


@dataclass(frozen=True)
class Smoothing:
    """CERTIFY of Cohen et al. 2019: R = σ·Φ⁻¹(p̲), p̲ the Clopper–Pearson lower bound on P[F(x + ε) = c]; p̲ ≤ ½ abstains.

    The class c is the most frequent of `selection_samples` draws (n₀ in the paper), p̲ comes from `samples` others (n): the
    same draws for both would invalidate the bound. Draws depend on the image's pixels and the seed alone. Copies on which
    the model abstains vote for no class; if they are the most frequent, the vote abstains.

    >>> import torch
    >>> certify = Smoothing(sigma=0.1, samples=1000)
    >>> certificate = certify(lambda images: 10 * images.flatten(1), torch.tensor([[[[0.9, 0.1]]]]))
    >>> certificate.prediction.item(), round(certificate.radius.item(), 3)  # at most σ·Φ⁻¹(0.001^(1/1000)), with 1000 draws
    (0, 0.246)
    """

    sigma: float = setting(0.25, "Standard deviation of the noise, in pixels of [0, 1].")
    samples: int = setting(10_000, "Noisy copies per image that bound the probability of the class.")
    selection_samples: int = setting(100, "Other noisy copies per image that choose the class.")
    alpha: float = setting(0.001, "Probability that the certificate of an image is false.")
    seed: int = setting(0, "Seed of the noise.")

    def __post_init__(self) -> None:
        check_noise(self.sigma, samples=self.samples, selection_samples=self.selection_samples)
        if not self.sigma > 0:
            raise ArgumentError("sigma", "positive to certify a radius", self.sigma)
        if not 0 < self.alpha < 1:
            raise ArgumentError("alpha", "a probability of failure such as 0.001", self.alpha)

    def __call__(
        self,
        model: Model | Calls,
        images: Tensor,
        progress: Progress = no_progress,
        *,
        bounds: Bounds = (0.0, 1.0),
        chunk: int | None = None,
    ) -> Certificate:
        return certify_by_votes(model, images, self, progress, bounds, chunk)


def certify_by_votes(
    model: Model | Calls, images: Tensor, settings: Smoothing, progress: Progress, bounds: Bounds, chunk: int | None
) -> Certificate:
    """What `Smoothing` states about the images; `probability` in the details is p̲."""
    # Imported here: `locality certify --help` reads the settings above without waiting for torch.
    import torch

    from locality.certified.certificate import Certificate
    from locality.certified.votes import count_votes
    from locality.model_calls import open_model
    from locality.model_calls.checks import working_copy
    from locality.model_calls.randomness import image_seeds

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
            selection = count_votes(model, calls, image[None], settings.sigma, settings.selection_samples, generator, count)
            chosen = int(selection.argmax())
            bounding = count_votes(model, calls, image[None], settings.sigma, settings.samples, generator, count)
            abstained = chosen == len(selection) - 1  # the last count
            chosen_classes.append(chosen)
            successes = 0 if abstained else int(bounding[chosen])
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
    with needing("randomised smoothing"):
        from scipy.stats import beta

    return float(beta.ppf(alpha, successes, trials - successes + 1)) if successes else 0.0


def check_noise(sigma: float, **counts: int) -> None:
    """Raise unless `sigma` is a standard deviation and every count a number of noisy images."""
    if not (math.isfinite(sigma) and sigma >= 0):
        raise ArgumentError("sigma", "the standard deviation of the noise in pixels, 0 or more", sigma)
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ArgumentError(name, "a whole number of noisy images", count)
