"""The certificate of randomised smoothing (Cohen et al. 2019; section 3.3.3 of the thesis).

Definition 13 of the thesis: F_σ(x) = argmax_c P[F(x + ε) = c], ε ~ N(0, σ²I). The certificate is about F_σ, the vote of
infinitely many noisy copies, not about the model F itself; `votes` gives the vote of finitely many, `SmoothedModel` the mean
of the outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from locality.errors import ArgumentError
from locality.progress import Progress, no_progress
from locality.toml_settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from locality.certified.certificate import Certificate
    from locality.model_calls import Calls, Model
    from locality.model_calls.checks import Bounds


@dataclass(frozen=True)
class Smoothing:
    """CERTIFY of Cohen et al. 2019: R = σ·Φ⁻¹(p̲), p̲ the Clopper–Pearson lower bound on P[F(x + ε) = c]; p̲ ≤ ½ abstains.

    The class c is the most frequent of `selection_samples` draws (n₀ in the paper), p̲ comes from `samples` others (n): the
    same draws for both would invalidate the bound. Draws depend on the image's pixels and the seed alone.

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
        from locality.certified.votes import certify_by_votes

        return certify_by_votes(model, images, self, progress, bounds, chunk)


def check_noise(sigma: float, **counts: int) -> None:
    """Raise unless `sigma` is a standard deviation and every count a number of noisy images."""
    if not (math.isfinite(sigma) and sigma >= 0):
        raise ArgumentError("sigma", "the standard deviation of the noise in pixels, 0 or more", sigma)
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ArgumentError(name, "a whole number of noisy images", count)
