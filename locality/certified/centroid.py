"""The certificate of a Centroid Net: how far an image must move before its features reach the region of another decision.

The encoder is K-Lipschitz, so an image that moves by r moves its features by K·r at most; the regions are balls and
half-spaces (`centroid_geometry`). Theorem 8 of the thesis states that two accepted images of different classes are at least
(1 + η)·d_min/K apart, and Theorem 9 that the class is stable within half of it. Both are false; with η for 1 + η they hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from locality.errors import ArgumentError, unknown_choice
from locality.progress import Progress, no_progress
from locality.toml_settings import setting
from locality.types import ABSTAINED

if TYPE_CHECKING:
    from torch import Tensor

    from locality.certified.certificate import Certificate
    from locality.model_calls import Model
    from locality.model_calls.checks import Bounds

CHUNK = 32  # images in one pass, fewer where the pairs of their centroids would take more than
MOST_NUMBERS = 2**24
GUARANTEES: dict[str, str] = {
    "decision": "the network decides for the same class",
    "class": "the nearest centroid is of the same class; the network may abstain",
    "no_other": "the network decides for the same class or abstains",
}


@dataclass(frozen=True)
class Centroid:
    """Radii from the geometry of the centroids and a Lipschitz bound of the encoder, deterministic, for Centroid Nets.

    `guarantee` says what the radius is about: that the network neither changes its decision nor abstains (`decision`), that
    the nearest centroid stays one of the same class (`class`), or that the network does not decide for another class
    (`no_other`). The details have all three: `r_keep` ≤ `r_class` ≤ `r_other`. Where the network abstains, all are 0.
    """

    guarantee: str = setting(
        "decision", "What holds within the radius: decision, class (of the nearest centroid) or no_other."
    )
    tight: bool = setting(
        False, "Prove large convolutions to 1e-5 with zero padding: a larger radius, minutes for the bound."
    )

    def __post_init__(self) -> None:
        if self.guarantee not in GUARANTEES:
            raise unknown_choice("guarantee", self.guarantee, GUARANTEES)

    def __call__(
        self, model: Model, images: Tensor, progress: Progress = no_progress, *, bounds: Bounds = (0.0, 1.0)
    ) -> Certificate:
        return certify_by_centroids(model, images, self, progress, bounds)


def certify_by_centroids(
    model: Model, images: Tensor, settings: Centroid, progress: Progress, bounds: Bounds
) -> Certificate:
    """What `Centroid` states; `nearest` and `second` in the details are d₁ and d₂."""
    # Imported here: `locality certify --help` reads the settings above without waiting for torch.
    import torch

    from locality.certified.centroid_geometry import latent_radii, smallest_distance
    from locality.certified.certificate import Certificate
    from locality.certified.known_bounds import known_bound
    from locality.certified.lipschitz_bound import float64_copy, image_lengths
    from locality.model_calls.checks import working_copy
    from locality.zoo.nets.centroid import CentroidNet
    from locality.zoo.pixel_model import PixelModel

    pixels = working_copy(images, bounds).to("cpu", torch.float64)
    exact = float64_copy(model)  # type: ignore[arg-type]
    net = exact.net if isinstance(exact, PixelModel) else exact
    if not isinstance(net, CentroidNet):
        hint = "certify other networks with `--by lipschitz`, `by=Lipschitz()`"
        raise ArgumentError("model", "a Centroid Net", type(net).__name__, hint)
    head, bound = net.centroid_head, known_bound(model, tuple(pixels.shape[1:]), settings.tight)  # type: ignore[arg-type]
    centroids, diameter = head.centroids.detach(), math.sqrt(math.prod(pixels.shape[1:]))
    columns, done = [], 0
    size = max(1, min(CHUNK, MOST_NUMBERS // (centroids.numel() * centroids.shape[1])))
    for chunk in pixels.split(size):
        progress(done, len(pixels))
        with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
            inputs = exact.normalised(chunk.clone()) if isinstance(exact, PixelModel) else chunk.clone()
            features = net.penultimate(inputs)
            logits = head(features)
        if features.dtype != torch.float64 or not bool(torch.isfinite(features).all()):
            raise ArgumentError("model", "one with finite float64 features", "others", "check its weights")
        classes, rejected = logits.argmax(1), head.abstains(logits)
        # The evaluation of the features is wrong at x and at x′, which is `diameter` away at most.
        wrong = 2 * bound.rounding.error(image_lengths(chunk) + diameter)
        radii = [
            torch.where(rejected, 0.0, ((latent - wrong).clamp_min(0) / bound.features * (1 - 1e-15)).clamp(max=diameter))
            for latent in latent_radii(features, centroids, classes, head.ratio)
        ]
        two = (-logits).topk(2, dim=1, largest=False).values
        columns.append((torch.where(rejected, ABSTAINED, classes), *radii, two[:, 0], two[:, 1]))
        done += len(chunk)
    progress(done, len(pixels))
    prediction, same, other, keep, nearest, second = (torch.cat(column) for column in zip(*columns, strict=True))
    gap = head.eta * smallest_distance(centroids) / bound.features
    return Certificate(
        prediction,
        {"decision": keep, "class": same, "no_other": other}[settings.guarantee],
        torch.zeros_like(same),
        norm="l2",
        details={"r_class": same, "r_other": other, "r_keep": keep, "nearest": nearest, "second": second},
        facts={
            "lipschitz": {"features": bound.features, "margin": bound.largest},
            "layers": dict(bound.layers),
            "guarantee": GUARANTEES[settings.guarantee],
            "smallest distance of accepted images of two classes": gap,
        },
    )
