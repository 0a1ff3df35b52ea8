"""The certificate of a Lipschitz bound: a margin that cannot shrink to zero within a radius.

Class j wins at every x′ nearer than r = min over i of (f_j(x) − f_i(x) − 2δ_ji)/K_ji. K_ji bounds how fast f_j − f_i changes
(`lipschitz_bound`), δ_ji the rounding error of the margin in float64, at x and at x′. The statement is about the network
with its weights in float64, rounding of that evaluation included, and holds for certain (GloRo Nets: Leino et al. 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING

from locality.certified.centroid import Centroid
from locality.errors import ArgumentError, ArgumentTypeError
from locality.progress import Progress, no_progress
from locality.toml_settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from locality.certified import Certifier
    from locality.certified.certificate import Certificate
    from locality.certified.lipschitz_bound import LipschitzBound
    from locality.model_calls import Model
    from locality.model_calls.checks import Bounds

CHUNK = 32  # images in one pass


@dataclass(frozen=True)
class Lipschitz:
    """Radii from a Lipschitz bound of the network, deterministic, in one float64 forward pass per image.

    No radius is larger than the diameter √d of the pixels' cube [0, 1]^d. A tie has radius 0.

    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    >>> with torch.no_grad():
    ...     _ = model[1].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> certificate = Lipschitz()(model, torch.tensor([[[[0.75, 0.25]]]]))
    >>> certificate.prediction.item(), round(certificate.radius.item(), 6)  # the distance to the diagonal, 0.5/√2
    (0, 0.353553)
    """

    slack: float = setting(0.0, "Largest difference of a logit between the network in use and float64, to be subtracted.")
    tight: bool = setting(
        False, "Prove large convolutions to 1e-5 with zero padding: a larger radius, minutes for the bound."
    )

    def __post_init__(self) -> None:
        if isinstance(self.slack, str) or not 0 <= self.slack < math.inf:
            raise ArgumentError("slack", "a difference of logits, 0 or more", self.slack)

    def __call__(
        self,
        model: Model,
        images: Tensor,
        progress: Progress = no_progress,
        *,
        bound: LipschitzBound | None = None,
        bounds: Bounds = (0.0, 1.0),
    ) -> Certificate:
        return certify_by_bound(model, images, self, progress, bound, bounds)


def certify(model: Model, images: Tensor, by: Certifier | None = None, progress: Progress = no_progress) -> Certificate:
    """A prediction per image and a radius within which it provably does not change.

    Without `by` the model's Lipschitz bound is used, which needs layers that have one, and for Centroid Nets the geometry
    of their centroids, too; `by=Smoothing()` certifies the votes of any model. `verified_accuracy` does so for a data set.

    >>> import torch
    >>> from torch import nn
    >>> certify(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), torch.rand(2, 3, 2, 2)).failure_probability.tolist()
    [0.0, 0.0]
    """
    return (certificate_for(model) if by is None else checked(by))(model, images, progress)


def certificate_for(model: Model) -> Certifier:
    """The deterministic certificate for this kind of model: `Centroid` if it may abstain, else `Lipschitz`."""
    return Centroid() if hasattr(model, "abstains") else Lipschitz()


def checked(by: Certifier) -> Certifier:
    """The certificate, if it is one with its settings and neither a name nor a class."""
    if isinstance(by, type) or not (callable(by) and is_dataclass(by)):
        got = by.__name__ if isinstance(by, type) else by
        hint = "from locality.certified import Lipschitz, Centroid, Smoothing"
        raise ArgumentTypeError("by", "a certificate with its settings, such as Smoothing(sigma=0.25)", got, hint)
    return by


def certify_by_bound(
    model: Model, images: Tensor, settings: Lipschitz, progress: Progress, bound: LipschitzBound | None, bounds: Bounds
) -> Certificate:
    """What `Lipschitz` states; `rival` in the details is the class that limits the radius, `margin` the lead over it."""
    # Imported here: `locality certify --help` reads the settings above without waiting for torch.
    import torch

    from locality.certified.certificate import Certificate
    from locality.certified.known_bounds import known_bound
    from locality.certified.lipschitz_bound import float64_copy
    from locality.model_calls.checks import working_copy

    if hasattr(model, "abstains"):
        hint = "certify a Centroid Net with `--by centroid`, `by=Centroid()`"
        raise ArgumentError("model", "one that always decides", "one that may abstain", hint)
    pixels = working_copy(images, bounds).to("cpu", torch.float64)
    exact = float64_copy(model)  # type: ignore[arg-type]
    bound = bound or known_bound(model, tuple(pixels.shape[1:]), settings.tight)  # type: ignore[arg-type]
    if bound.shape != tuple(pixels.shape[1:]):
        hint = "a Lipschitz bound holds for one size: compute another with lipschitz_bound"
        raise ArgumentError("images", f"of shape N×{'×'.join(map(str, bound.shape))}", tuple(pixels.shape), hint)
    columns = []
    progress(0, len(pixels))
    for start in range(0, len(pixels), CHUNK):
        chunk = pixels[start : start + CHUNK]
        with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
            logits = exact(chunk.clone())
        columns.append(_radii(logits, chunk, bound, settings.slack))
        progress(start + len(chunk), len(pixels))
    prediction, radius, rival, margin = (torch.cat(column) for column in zip(*columns, strict=True))
    return Certificate(
        prediction,
        radius,
        torch.zeros_like(radius),
        norm="l2",
        details={"rival": rival, "margin": margin},
        facts={
            "lipschitz": {"features": bound.features, "margin": bound.largest},  # of the margin: the largest of all pairs
            "layers": dict(bound.layers),
        },
    )


def _radii(logits: Tensor, images: Tensor, bound: LipschitzBound, slack: float) -> tuple[Tensor, ...]:
    """Predictions, radii, rivals and margins of a few images."""
    import torch

    from locality.certified.lipschitz_bound import image_lengths

    if logits.dtype != torch.float64 or not bool(torch.isfinite(logits).all()):
        raise ArgumentError("model", "one that returns finite float64 logits", "others", "check its weights")
    prediction = logits.argmax(1)
    rows = torch.arange(len(logits))
    margins = logits[rows, prediction][:, None] - logits
    constants = bound.margins[prediction]
    diameter = math.sqrt(math.prod(images.shape[1:]))
    # Rounding at x′, too: it is `diameter` away at most, whatever the radius turns out to be.
    errors = bound.margin_errors(prediction, image_lengths(images) + diameter)
    left = (margins - 2 * errors - 2 * slack) * (1 - 1e-15)
    radii = torch.where(left > 0, (left / constants * (1 - 1e-15)).clamp(max=diameter), 0.0)
    radii[rows, prediction] = math.inf  # no rival of itself, by index: logits of other classes may be equal
    radius, rival = radii.min(1)
    return prediction, radius, rival, margins[rows, rival]
