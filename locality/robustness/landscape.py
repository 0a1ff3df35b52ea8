"""Loss landscapes: the loss around an image (after Engstrom et al. 2018) and around the weights (after Li et al. 2018)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from locality.errors import ArgumentError, unknown_choice
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import check_labels, check_target, working_copy
from locality.model_calls.randomness import image_seeds
from locality.perturbation import RELATIVE_STEP_SIZE, ascend, random_in_ball
from locality.progress import Progress, no_progress
from locality.robustness.landscape_grids import Landscape, Numbers
from locality.robustness.pgd import LOSSES, Loss
from locality.types import Threat

Normalise = Literal["filter", "layer"]
RADIUS = 16 / 255


def input_landscape(
    model: Model | Calls,
    images: Tensor,
    labels: Tensor,
    radius: float = RADIUS,
    points: int = 41,
    seed: int = 0,
    loss: Loss = "ce",
    ids: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Landscape:
    """The loss at x + a·r₁ + b·r₂ for a, b from −radius to radius: r₁ = sign ∇ₓ loss, r₂ random signs, one per pixel.

    Pixels are not clipped, so that the plane stays a plane. r₂ depends on the image and the seed, not on the model or the
    batch: two models are compared along the same one, but each along its own r₁. It costs points² forward passes and one
    gradient per image.

    >>> images = torch.tensor([0.6, 0.5]).view(1, 1, 1, 2)
    >>> plane = input_landscape(nn.Flatten(), images, torch.tensor([0]), radius=0.1, points=3, loss="margin")
    >>> np.round(plane.losses[0, :, 1], 3).tolist()  # the larger other logit minus that of the label rises by 2 per pixel
    [-0.3, -0.1, 0.1]
    """
    pixels = working_copy(images)
    offsets = _offsets(points, radius, "radius")
    if loss not in LOSSES:
        raise unknown_choice("loss", loss, LOSSES)
    steps = torch.from_numpy(offsets).to(pixels)
    losses = np.empty((len(pixels), points, points))
    with open_model(model, pixels, bounds=None) as calls:
        classes = _classes(calls, pixels, labels)
        _, gradient = calls.gradient(pixels, LOSSES[loss], classes)
        signs = _random_signs(pixels, seed)
        for index, (image, first, second) in enumerate(zip(pixels, gradient.sign(), signs, strict=True)):
            row_images = image + steps.view(-1, 1, 1, 1) * second
            own = classes[index].expand(points)
            for row, offset in enumerate(steps):
                losses[index, row] = _losses(calls, row_images + offset * first, own, loss)
            progress(index + 1, len(pixels))
    slopes = torch.stack([(gradient * one).flatten(1).double().sum(1) for one in (gradient.sign(), signs)], dim=1)
    return Landscape("input", _ids(ids, len(pixels)), offsets, losses, slopes.cpu().numpy())


def weight_landscape(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    normalise: Normalise = "filter",
    directions: int = 5,
    points: int = 21,
    span: float = 1.0,
    attack: Threat | None = None,
    steps: int = 10,
    seed: int = 0,
    ids: Sequence[str] = (),
    progress: Progress = no_progress,
) -> Landscape:
    """The cross-entropy of each image at weights w + α·d for α from −span to span, along random directions d.

    d is Gaussian, and each of its filters (rows of a matrix) has the length of the filter of w: d_f · ‖w_f‖/‖d_f‖. So
    networks of different scales are comparable; normalise="layer" rescales whole tensors. Biases and the parameters of
    normalisation layers, those with one axis, stay. With `attack`, every image is attacked anew at every α: PGD from a
    random start, all `steps` made. The model is evaluated in eval mode, on a copy: the caller's is not touched.
    It costs directions · (points − 1) + 1 forward passes per image, and `steps` gradients with each under attack. The slopes
    are central differences.
    """
    if not isinstance(model, nn.Module) or not any(p.dim() > 1 for p in model.parameters()):
        raise ArgumentError("model", "an nn.Module with weight matrices", type(model).__name__)
    if normalise not in get_args(Normalise):
        raise unknown_choice("normalise", normalise, get_args(Normalise))
    for name, number in (("directions", directions), ("steps", steps)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ArgumentError(name, "a whole number of at least 1", number)
    offsets, pixels = _offsets(points, span, "span"), working_copy(images)
    losses = np.empty((len(pixels), directions, points))
    shifted, done = copy.deepcopy(model), 0

    def at(direction: dict[str, Tensor], alpha: float) -> Numbers:
        nonlocal done
        with torch.no_grad():
            for (name, moved), original in zip(shifted.named_parameters(), model.parameters(), strict=True):
                moved.copy_(original + alpha * direction[name] if name in direction else original)
        with open_model(shifted, pixels) as calls:
            classes = _classes(calls, pixels, labels)
            seen = pixels if attack is None else _attacked(calls, pixels, classes, attack, steps, seed)
            done += 1
            progress(done, directions * (points - 1) + 1)
            return _losses(calls, seen, classes, "ce")

    centre = at({}, 0.0)
    for row in range(directions):
        direction = dict(random_direction(model, normalise, seed, row))
        for column, alpha in enumerate(offsets):
            losses[:, row, column] = at(direction, float(alpha)) if alpha else centre
    middle = points // 2
    slopes = (losses[:, :, middle + 1] - losses[:, :, middle - 1]) / (offsets[middle + 1] - offsets[middle - 1])
    return Landscape("weights", _ids(ids, len(pixels)), offsets, losses, slopes)


def random_direction(model: nn.Module, normalise: Normalise, seed: int, index: int) -> Iterator[tuple[str, Tensor]]:
    """The names of the weights that move, and a Gaussian direction for each, of the length of its filters."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + index)
    for name, weight in model.named_parameters():
        if weight.dim() < 2:
            continue
        noise = torch.randn(weight.shape, generator=generator).to(weight)
        rows = len(weight) if normalise == "filter" else 1
        lengths = [tensor.detach().reshape(rows, -1).norm(dim=1, keepdim=True) for tensor in (weight, noise)]
        yield name, (noise.reshape(rows, -1) * (lengths[0] / lengths[1])).view_as(weight)


def _attacked(calls: Calls, images: Tensor, classes: Tensor, threat: Threat, steps: int, seed: int) -> Tensor:
    start = random_in_ball(images, image_seeds(images, seed), threat.radius, threat.norm)

    def gradient(points: Tensor) -> Tensor:
        return calls.gradient(points, LOSSES["ce"], classes)[1]

    return ascend(gradient, images, start, threat, steps, RELATIVE_STEP_SIZE[threat.norm] * threat.radius)


def _losses(calls: Calls, images: Tensor, classes: Tensor, loss: Loss) -> Numbers:
    values: Numbers = LOSSES[loss](calls.logits(images).double(), classes).cpu().numpy()
    return values


def _random_signs(images: Tensor, seed: int) -> Tensor:
    """±1 for each pixel and channel, from the image's own seed."""
    generators = [torch.Generator().manual_seed(number) for number in image_seeds(images, seed)]
    drawn = [torch.randint(0, 2, images.shape[1:], generator=generator) for generator in generators]
    return 2 * torch.stack(drawn).to(images) - 1


def _offsets(points: int, reach: float, name: str) -> Numbers:
    if isinstance(points, bool) or not isinstance(points, int) or points < 3 or points % 2 == 0:
        raise ArgumentError("points", "an odd number of at least 3, so that one is the centre", points)
    if not 0 < reach < float("inf"):
        raise ArgumentError(name, "a positive number", reach)
    offsets: Numbers = np.arange(-(points // 2), points // 2 + 1) / (points // 2) * reach
    return offsets


def _classes(calls: Calls, images: Tensor, labels: Tensor) -> Tensor:
    classes = check_labels(labels, len(images)).to(images.device)
    check_target(classes, calls.logits(images[:1]).shape[1], "labels")
    return classes


def _ids(ids: Sequence[str], images: int) -> tuple[str, ...]:
    if ids and len(ids) != images:
        raise ArgumentError("ids", f"{images} names, one per image", len(ids))
    return tuple(ids) or tuple(map(str, range(images)))
