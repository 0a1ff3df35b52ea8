"""INFD: by how much an attribution, taken as a linear model, misses the change of the logit under noise (Definition 8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from locality.attribution.baselines import Baseline, baseline_images
from locality.attribution.class_gradient import ClassGradient, class_gradient
from locality.errors import ArgumentError
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.randomness import image_seeds
from locality.model_calls.targets import Target, class_indices, class_logit
from locality.types import PathMaps

Draw = Callable[[Tensor], Tensor]  # image indices ↦ one new perturbation ε for each
SAMPLES = 100


class Noise(Protocol):
    """A distribution of perturbations; `str` names it in results."""

    def draw(self, images: Tensor, seeds: list[int], bounds: Bounds) -> Draw:
        """A function that draws ε; an image's draws depend on its own seed and on how many it had before."""
        ...


@dataclass(frozen=True)
class GaussianNoise:
    """ε ~ N(0, σ²) in every feature; x + ε may leave [0, 1], because clipping would shift the mean of the noise."""

    sigma: float = 0.03

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise ArgumentError("sigma", "a positive number of pixels", self.sigma)

    def __str__(self) -> str:
        return f"Gaussian, sigma {self.sigma:g}"

    def draw(self, images: Tensor, seeds: list[int], bounds: Bounds) -> Draw:
        generators = _generators(seeds)

        def noise(indices: Tensor) -> Tensor:
            drawn = [torch.randn(images.shape[1:], generator=generators[index]) for index in indices.tolist()]
            return self.sigma * torch.stack(drawn).to(images)

        return noise


@dataclass(frozen=True, eq=False)
class PathNoise:
    """ε = t(b − x), t uniform in [0, 1]: the line along which IG (b black) and BIG (b the boundary point) average gradients.

    The thesis names this distribution in section 2.2.3 and adds that IG is not its minimiser: it is exact at t = 1 only.
    """

    baseline: Baseline = "black"

    def __str__(self) -> str:
        return f"path from {_text(self.baseline)}"

    def draw(self, images: Tensor, seeds: list[int], bounds: Bounds) -> Draw:
        offset = baseline_images(self.baseline, images, bounds) - images
        generators = _generators(seeds)

        def noise(indices: Tensor) -> Tensor:
            times = torch.stack([torch.rand((), generator=generators[index]) for index in indices.tolist()])
            return times.to(images).view(-1, 1, 1, 1) * offset[indices]

        return noise


@dataclass(frozen=True, eq=False)
class BaselineStep:
    """ε = b − x, always: the perturbation for which INFD is the square of the completeness gap."""

    baseline: Baseline = "black"

    def __str__(self) -> str:
        return f"step to {_text(self.baseline)}"

    def draw(self, images: Tensor, seeds: list[int], bounds: Bounds) -> Draw:
        offset = baseline_images(self.baseline, images, bounds) - images
        return lambda indices: offset[indices]


@dataclass(frozen=True, eq=False)
class SquareRemoval:
    """One random square of all channels is replaced by `fill` (after Yeh et al. 2019).

    The side is uniform from 1 pixel to `largest` × the shorter side of the image, the position uniform inside the image. The
    published code uses 1 to 10 pixels of MNIST's 28, and black.
    """

    fill: Baseline = "black"
    largest: float = 1 / 3

    def __post_init__(self) -> None:
        if not 0 < self.largest <= 1:
            raise ArgumentError("largest", "a share of the image's shorter side in (0, 1]", self.largest)

    def __str__(self) -> str:
        return f"square removal to {_text(self.fill)}, side up to {self.largest:.3g}"

    def draw(self, images: Tensor, seeds: list[int], bounds: Bounds) -> Draw:
        offset = baseline_images(self.fill, images, bounds) - images
        generators = _generators(seeds)
        height, width = images.shape[-2:]
        longest = max(1, round(self.largest * min(height, width)))

        def noise(indices: Tensor) -> Tensor:
            mask = torch.zeros(len(indices), 1, height, width, dtype=torch.bool)
            for row, index in enumerate(indices.tolist()):
                side, top, left = torch.rand(3, generator=generators[index], dtype=torch.float64).tolist()
                side = 1 + int(side * longest)
                top, left = int(top * (height - side + 1)), int(left * (width - side + 1))
                mask[row, :, top : top + side, left : left + side] = True
            return torch.where(mask.to(images.device), offset[indices], torch.zeros_like(images[:1]))

        return noise


@dataclass(frozen=True, eq=False)
class Infidelity:
    """INFD of each image under one noise, with standard errors of the Monte Carlo mean; `nan` where the map is undefined.

    With a = w·ε and d = f_y(x + ε) − f_y(x). The error of a ratio is that of its linearisation; it is 0 for a constant
    perturbation, and `nan` for one sample of any other.
    """

    noise: str
    samples: int
    raw: Tensor  # N, E[(a − d)²]
    raw_error: Tensor  # N
    normalised: Tensor  # N, E[(a − d)²]/E[d²]: 0 is exact, 1 is no better than no attribution; nan where d is always 0
    normalised_error: Tensor  # N
    scaled: Tensor  # N, E[(βa − d)²] with the best β = E[ad]/E[a²]: Captum's `normalize=True`
    scaled_error: Tensor  # N
    scale: Tensor  # N, β: 1 where the map has the right size, 0 where a is always 0


def infidelity(
    model: Model | Calls,
    images: Tensor,
    maps: Tensor | PathMaps,
    noise: Noise | None = None,
    target: Target = None,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> Infidelity:
    """INFD(w) = E_ε[(w·ε − (f_y(x + ε) − f_y(x)))²] under `noise` (Gaussian by default), with `samples` draws per image.

    w is the map itself (SM, BSM, SmoothGrad), and the integral part if `maps` is PathMaps (IG, BIG): their maps already
    contain the factor x − b. `target` must be the class that the maps explain. Draws depend on the image's pixels and the
    seed only. Catch: logits are float32, so for very narrow noise d is only rounding error.

    >>> linear = lambda images: images.flatten(1) @ torch.tensor([[1.0, -2.0], [0.0, 3.0]])
    >>> right, wrong = torch.tensor([[[[-2.0, 3.0]]]]), torch.tensor([[[[3.0, -2.0]]]])
    >>> image = torch.full((1, 1, 1, 2), 0.5)
    >>> [infidelity(linear, image, maps, target=1).normalised.item() > 0.1 for maps in (right, wrong)]
    [False, True]
    """
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ArgumentError("samples", "a whole number of perturbations per image", samples)
    noise = GaussianNoise() if noise is None else noise
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        weights = linear_weights(maps, pixels)
        at_image = class_gradient(calls, pixels, class_indices(target, pixels), with_gradient=False)
        return infidelity_at(calls, pixels, weights, at_image, noise, samples, seed, bounds)


def infidelity_at(
    calls: Calls,
    images: Tensor,
    weights: Tensor,
    at_image: ClassGradient,
    noise: Noise,
    samples: int,
    seed: int,
    bounds: Bounds,
) -> Infidelity:
    """INFD of the weights, given f_y(x), which several noises share."""
    fixed = isinstance(noise, BaselineStep)
    draw = noise.draw(images, image_seeds(images, seed), bounds)
    explained, change = explained_and_change(calls, images, weights, at_image, draw, 1 if fixed else samples)
    return moments(explained, change, str(noise), fixed=fixed, like=images)


def explained_and_change(
    calls: Calls, images: Tensor, weights: Tensor, at_image: ClassGradient, draw: Draw, samples: int
) -> tuple[Tensor, Tensor]:
    """N×samples float64 on the CPU: w·ε and f_y(x + ε) − f_y(x); `nan` without an evaluation where the map is undefined."""
    rows = weights.flatten(1).isfinite().all(1).nonzero()[:, 0]
    explained = torch.full((len(images), samples), torch.nan, dtype=torch.float64)
    change = explained.clone()
    start = 0
    while start < len(rows) * samples:
        pairs = torch.arange(start, min(start + calls.chunk, len(rows) * samples), device=images.device)
        image, sample = rows[pairs // samples], pairs % samples
        points = images[image] + draw(image)
        # The step after rounding, not ε itself: a linear model then has INFD 0 up to the rounding of its logits.
        step = points - images[image]
        logit = class_logit(calls.logits(points), at_image.target[image])
        entry = (image.cpu(), sample.cpu())
        explained[entry] = (weights[image] * step).flatten(1).sum(1).cpu().double()
        change[entry] = logit.cpu().double() - at_image.logit[image].cpu().double()
        start += len(pairs)
    return explained, change


def moments(explained: Tensor, change: Tensor, noise: str, *, fixed: bool, like: Tensor) -> Infidelity:
    """The three forms of INFD and their standard errors from N×samples values of a = w·ε and d."""
    square, size = (explained - change) ** 2, change**2
    raw, total = square.mean(1), size.mean(1)
    ratio = raw / total  # 0/0 and x/0: undefined
    ratio[total == 0] = torch.nan
    power = (explained**2).mean(1)
    scale = torch.where(power == 0, torch.zeros_like(power), (explained * change).mean(1) / power)
    rest = (scale[:, None] * explained - change) ** 2

    def error(values: Tensor) -> Tensor:
        if fixed:
            return 0 * values[:, 0]
        return values.std(1, correction=1) / values.shape[1] ** 0.5 if values.shape[1] > 1 else values[:, 0] * torch.nan

    # Delta method. X̄/Ȳ varies as (X − rY)/Ȳ does; the best β is a minimum, so that its own error has no first-order effect.
    ratio_error = error(square - ratio[:, None] * size) / total
    columns = (raw, error(square), ratio, ratio_error, rest.mean(1), error(rest), scale)
    return Infidelity(noise, change.shape[1], *(values.to(like) for values in columns))


def linear_weights(maps: Tensor | PathMaps, images: Tensor) -> Tensor:
    """The w of INFD: the integral part of IG and BIG, any other map as it is."""
    weights = maps.integral if isinstance(maps, PathMaps) else maps
    if weights.shape != images.shape:
        raise ArgumentError("maps", f"of the shape of the images, {tuple(images.shape)}", tuple(weights.shape))
    return weights.detach().to(images)


def _generators(seeds: list[int]) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def _text(baseline: Baseline) -> str:
    return "given points" if isinstance(baseline, Tensor) else str(baseline)
