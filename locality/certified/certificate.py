"""What is proved about decisions: a prediction per image, a radius within which it cannot change, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from locality.errors import ArgumentError, ArgumentTypeError
from locality.types import ABSTAINED, Norm

if TYPE_CHECKING:
    from torch import Tensor

RADII = (36 / 255, 72 / 255, 108 / 255)  # at which verified accuracy is stated, by default: those of the literature
Fact = float | str | Mapping[str, float]
NOTHING: Mapping[str, Tensor] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Certificate:
    """At every point nearer than `radius[i]` to image i, the decision is `prediction[i]`.

    The ball is open and not cut to [0, 1]. Each of the N statements is false with probability `failure_probability` at most,
    which is 0 for a deterministic proof. Where the model abstains, nothing is stated: prediction −1, radius 0. Tensors are
    on the CPU; radii are float64; `rounded_down` gives them in float32.

    >>> import torch
    >>> numbers = torch.tensor([0.5, 0.0], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    >>> certificate = Certificate(torch.tensor([3, ABSTAINED]), *numbers)
    >>> certificate.holds(torch.tensor([3, 1]), radius=0.25).tolist(), certificate.abstained.tolist()
    ([True, False], [False, True])
    """

    prediction: Tensor  # N int64, −1 where the model abstains
    radius: Tensor  # N float64, in pixels of [0, 1]
    failure_probability: Tensor  # N float64
    norm: Norm = "l2"
    details: Mapping[str, Tensor] = field(default_factory=lambda: NOTHING)  # name ↦ N: what else is known about each image
    facts: Mapping[str, Fact] = field(default_factory=dict)  # about the model: a Lipschitz bound, for example

    def __post_init__(self) -> None:
        count = len(self.prediction)
        for name, values in (
            ("radius", self.radius),
            ("failure_probability", self.failure_probability),
            *self.details.items(),
        ):
            if values.shape != (count,):
                raise ArgumentError(name, f"one number for each of the {count} predictions", tuple(values.shape))
        if not bool((self.radius >= 0).all()):  # also false for nan
            raise ArgumentError("radius", "0 or more", float(self.radius.min()))
        if bool(self.radius[self.abstained].any()):
            raise ArgumentError("radius", "0 where the model abstains", float(self.radius[self.abstained].max()))

    @property
    def abstained(self) -> Tensor:
        """N bool: the model declines to decide."""
        return self.prediction == ABSTAINED

    def certifies(self, radius: float) -> Tensor:
        """N bool: the decision, right or wrong, cannot change within a distance of `radius` or less."""
        if not _is_radius(radius):
            raise ArgumentError("radius", "a distance in pixels of [0, 1], 0 or more", radius)
        return ~self.abstained & (self.radius > radius)

    def holds(self, labels: Tensor, radius: float) -> Tensor:
        """N bool: the decision is right and cannot change within `radius`; their share is the verified accuracy."""
        if labels.shape != self.prediction.shape:
            expected = f"one for each of the {len(self.prediction)} predictions"
            raise ArgumentError("labels", expected, tuple(labels.shape))
        return (self.prediction == labels.to(self.prediction.device)) & self.certifies(radius)

    @staticmethod
    def cat(parts: Sequence[Certificate]) -> Certificate:
        """The certificates of consecutive blocks of images as one."""
        import torch

        first = parts[0]
        return Certificate(
            prediction=torch.cat([part.prediction for part in parts]),
            radius=torch.cat([part.radius for part in parts]),
            failure_probability=torch.cat([part.failure_probability for part in parts]),
            norm=first.norm,
            details={name: torch.cat([part.details[name] for part in parts]) for name in first.details},
            facts=first.facts,
        )


def check_radii(radii: Sequence[float]) -> None:
    """Raise unless there is a radius and every one is 0 or more."""
    if not isinstance(radii, Sequence) or isinstance(radii, str):
        raise ArgumentTypeError("radii", "several distances in pixels of [0, 1], such as (36 / 255,)", radii)
    if not radii or not all(map(_is_radius, radii)):
        raise ArgumentError("radii", "distances in pixels of [0, 1], 0 or more", list(radii))
    if len(set(map(radius_text, radii))) < len(radii):
        raise ArgumentError("radii", "different distances", list(radii))


def _is_radius(value: object) -> bool:
    return not isinstance(value, str) and 0 <= value < float("inf")  # type: ignore[operator]


def radius_text(radius: float) -> str:
    """A radius as people write it: in 255ths if it is a whole number of them.

    >>> [radius_text(radius) for radius in (36 / 255, 0.25, 0, 1.0)]
    ['36/255', '0.25', '0', '1']
    """
    steps = round(255 * radius)
    return f"{steps}/255" if radius == steps / 255 and radius != round(radius, 2) else f"{radius:.12g}"


def rounded_down(radius: Tensor) -> Tensor:
    """Radii in float32, never larger than they are in float64: rounding to the nearest would enlarge half of them.

    >>> import torch
    >>> rounded_down(torch.tensor([0.1], dtype=torch.float64)).double().item() < 0.1 < torch.tensor(0.1).item()
    True
    """
    import torch

    nearest = radius.to(torch.float32)
    return torch.where(nearest > radius, nearest.nextafter(torch.zeros_like(nearest)), nearest)
