"""The values that flow through locality: boxes, samples, model specs, boundary points, maps, scores.

Every class is frozen. Shapes are written as N (images), C (channels), H×W (rows × columns); a field's comment gives its
shape. This module does not import torch, so the command line can use it before torch is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from locality.errors import ArgumentError, unknown_choice
from locality.pictures import pictures_html
from locality.toml_settings import number_from

if TYPE_CHECKING:
    from torch import Tensor

Interpolation = Literal["bilinear", "bicubic"]
Region = Literal["box", "object", "cue"]
Channels = Literal["all", "sum"]  # every channel of a pixel is a feature, or the channels are added first
TargetName = Literal["predicted", "label"]  # the class that is attributed
Norm = Literal["l2", "linf"]
NORMS: dict[Norm, str] = {"l2": "ℓ2", "linf": "ℓ∞"}  # name ↦ how it is printed
SHOWN_IMAGES = 6  # of a batch or a data set in a notebook
ABSTAINED = -1  # the prediction of a model that declines to decide: neither right nor wrong, and never attributed


@dataclass(frozen=True, slots=True)
class Threat:
    """What an attacker may do to an image: move it by at most `radius` in `norm`, in pixels of [0, 1].

    >>> print(Threat("linf", 4 / 255), Threat("l2", 0.75), Threat("linf", 0.1))
    ℓ∞ 4/255 ℓ2 0.75 ℓ∞ 0.1
    >>> Threat.parse("linf 4/255") == Threat("linf", 4 / 255)
    True
    """

    norm: Norm
    radius: float

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise unknown_choice("norm", self.norm, NORMS)
        if isinstance(self.radius, bool) or not isinstance(self.radius, int | float) or not 0 < self.radius < math.inf:
            raise ArgumentError("epsilon", "a positive distance in pixels of [0, 1], such as 4/255", self.radius)
        if self.norm == "linf" and self.radius > 1:
            raise ArgumentError(
                "epsilon",
                "at most 1 for linf, since pixels lie in [0, 1]",
                self.radius,
                f"did you mean {self.radius:g}/255?",
            )

    def __str__(self) -> str:
        return f"{NORMS[self.norm]} {self.radius_text}"

    @property
    def radius_text(self) -> str:
        """The radius as people write it: in 255ths for ℓ∞, unless it has two decimals or fewer; for ℓ2 if they are whole.

        >>> Threat("l2", 36 / 255).radius_text, Threat("l2", 0.5).radius_text
        ('36/255', '0.5')
        """
        steps = 255 * self.radius
        if round(self.radius, 2) == self.radius or (self.norm == "l2" and abs(steps - round(steps)) > 1e-9):
            return f"{self.radius:g}"
        return f"{steps:.3g}/255"

    @classmethod
    def parse(cls, text: str) -> Threat:
        """The threat written as `linf 4/255` or `l2 0.75`."""
        norm, _, radius = text.partition(" ")
        number = number_from(radius)
        if number is None:
            raise ArgumentError("threat", "a norm and a radius, such as linf 4/255", text)
        return cls(norm, number)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Box:
    """A half-open rectangle [x0, x1) × [y0, y1) in pixels; x runs to the right, y downwards.

    >>> Box(2, 3, 10, 7).area
    32
    """

    x0: float
    y0: float
    x1: float
    y1: float

    def __post_init__(self) -> None:
        corners = (self.x0, self.y0, self.x1, self.y1)
        if not all(math.isfinite(corner) for corner in corners):
            raise ArgumentError("Box", "made of finite numbers", corners)
        if self.x1 <= self.x0 or self.y1 <= self.y0:
            raise ArgumentError("Box", "made of corners with x0 < x1 and y0 < y1", corners, "are they swapped?")

    @property
    def width(self) -> float:
        return self.x1 - self.x0

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def area(self) -> float:
        return self.width * self.height


@dataclass(frozen=True, eq=False, repr=False)
class Sample:
    """One image with its label and the region a person marked. A notebook displays the image with its boxes.

    `label` and `accepted` index the data set's `classes`; a label of −1 means that the model has no such class.
    `mask` is what locality is scored against: the union of `boxes`; `outline` where `region` is "object"; `cue` where it is
    "cue". A planted cue hides what is behind it, so the masks of the other two regions leave its pixels out.
    """

    id: str
    image: Tensor  # 3×H×W float32 in [0, 1]
    label: int
    boxes: tuple[Box, ...]  # in the pixels of `image`
    mask: Tensor  # 1×H×W bool
    accepted: tuple[int, ...] = ()  # every label a person would accept, `label` first
    outline: Tensor | None = None  # 1×H×W bool, the object's own pixels where the source knows them
    region: Region = "box"
    cue: Tensor | None = None  # 1×H×W bool, the pixels of a planted cue
    cropped: float = 0.0  # share of the boxes' area that resize and crop cut away

    def __repr__(self) -> str:
        size = "×".join(map(str, self.image.shape))
        return f"<Sample {self.id}: label {self.label}, {size}, {_boxes_text(len(self.boxes))}>"

    def _repr_html_(self) -> str:
        return pictures_html(repr(self)[1:-1], [(self.image, self.boxes, self.id)])


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """Several samples of one size, stacked. A notebook displays the first images with their boxes."""

    ids: tuple[str, ...]
    images: Tensor  # N×3×H×W float32 in [0, 1]
    labels: Tensor  # N int64, −1 where the model has no such class
    masks: Tensor  # N×1×H×W bool
    boxes: tuple[tuple[Box, ...], ...]
    accepted: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        boxes = _boxes_text(sum(map(len, self.boxes)))
        return f"<Batch of {len(self):,} images {'×'.join(map(str, self.images.shape[1:]))}, {boxes}>"

    def _repr_html_(self) -> str:
        shown = list(zip(self.images, self.boxes, self.ids, strict=True))[:SHOWN_IMAGES]
        return pictures_html(repr(self)[1:-1], shown)


def _boxes_text(count: int) -> str:
    return f"{count:,} box{'' if count == 1 else 'es'}"


@dataclass(frozen=True)
class ModelSpec:
    """What a model expects of its images and what its logits mean.

    An image is resized until its short side is `resize`, then cropped to `input_size` around the centre; without `resize` it
    is stretched to `input_size`. The mean and the standard deviation are applied inside the model, never by the data.
    `classes` are WordNet ids, or other names, in the order of the logits.
    """

    name: str
    input_size: tuple[int, int] = (224, 224)  # height, width
    resize: int | None = 256
    interpolation: Interpolation = "bilinear"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    classes: tuple[str, ...] = ()
    num_classes: int | None = field(default=None, compare=False, repr=False)  # the number of logits, if it is known

    def __post_init__(self) -> None:
        if not isinstance(self.input_size, tuple) or len(self.input_size) != 2:
            raise ArgumentError("input_size", "(height, width)", self.input_size)
        if min(self.input_size) < 1 or (self.resize is not None and self.resize < max(self.input_size)):
            expected = f"at least the longer side of `input_size`, {self.input_size}"
            raise ArgumentError("resize", expected, self.resize, "the crop would leave the image")
        if self.interpolation not in get_args(Interpolation):
            raise unknown_choice("interpolation", self.interpolation, get_args(Interpolation))


@dataclass(frozen=True, eq=False)
class Boundary:
    """The nearest found points across the decision boundary.

    Where `found` is False, `points` holds the last iterate, `distance` is inf, `crossed_to` −1 and `optimality` nan.
    """

    points: Tensor  # N×C×H×W
    distance: Tensor  # N, in pixel space
    found: Tensor  # N bool
    labels: Tensor  # N int64, the class left
    crossed_to: Tensor  # N int64, the class reached, −1 where none was
    optimality: Tensor  # N, cosine between the displacement and the boundary's normal; 1 at a nearest point
    gradients: int = 0  # evaluated by the search, over all images; 0 where the points come from elsewhere
    forwards: int = 0  # forward passes without a gradient, likewise
    radius: Tensor | None = None  # N, certified: no boundary is nearer; None unless `certify_boundary` has added it

    def __repr__(self) -> str:
        distances = self.distance[self.found]
        middle = f", median distance {float(distances.double().quantile(0.5)):.3g}" if len(distances) else ""
        return f"<Boundary of {len(self.found)} images, found for {int(self.found.sum())}{middle}>"


@dataclass(frozen=True, eq=False)
class PathMaps:
    """Attributions along a path from a baseline b: (x − b) ⊙ integral, and the error of completeness."""

    maps: Tensor  # N×C×H×W, signed
    integral: Tensor  # N×C×H×W, the mean gradient along the path
    delta: Tensor  # N, sum of the map − (f(x) − f(b)), signed as Captum's convergence delta

    @property
    def gap(self) -> Tensor:
        """N: the completeness gap, |delta|."""
        return self.delta.abs()

    def __repr__(self) -> str:
        return f"<PathMaps {'×'.join(map(str, self.maps.shape))}>"


@dataclass(frozen=True, eq=False)
class LocalityScores:
    """How much of an attribution lies inside the region; `nan` where undefined."""

    precision: Tensor  # N
    recall: Tensor  # N
    f1: Tensor  # N

    def __repr__(self) -> str:
        defined = self.f1[~self.f1.isnan()]
        mean = f"mean F1 {float(defined.double().mean()):.3f}" if len(defined) else "F1 undefined"
        return f"<LocalityScores of {len(self.f1)} images, {mean}>"
