"""Adversarial Gradient Integration: gradients summed along the paths of targeted attacks."""

from __future__ import annotations

import torch
from torch import Tensor

from locality.attribution.class_gradient import class_gradient, warn_of_zero_maps
from locality.errors import ArgumentError
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.randomness import image_seeds
from locality.model_calls.targets import Target, class_indices, class_logit


def adversarial_gradient_integration(
    model: Model | Calls,
    images: Tensor,
    target: Target = None,
    classes: int = 20,
    steps: int = 15,
    step_size: float = 0.05,
    *,
    seed: int = 0,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> Tensor:
    """AGI = Σ_c Σ_j −∂f_y(x_j) ⊙ (x_{j+1} − x_j), x_{j+1} = clip(x_j + η·sign ∂log p_c(x_j)) (after Pan et al. 2021).

    Each of `classes` random classes c other than the predicted one is attacked from x_0 = x until the model predicts c, for
    at most `steps` steps. Each path adds about f_y(x) − f_y(end of the path), so the sum grows with the number of classes.
    Our choices: each step starts at x_j, the step size is 0.05, and the logit is attributed. Classes are drawn from the
    image's pixels and the seed; a model with fewer classes uses all of them.

    >>> import torch
    >>> linear = lambda images: images.flatten(1) @ torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> adversarial_gradient_integration(linear, torch.tensor([[[[0.58, 0.5]]]])).flatten()  # one step is enough
    tensor([0.0500, 0.0000])
    """
    for name, value in (("classes", classes), ("steps", steps)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ArgumentError(name, "a whole number of at least 1", value)
    if not step_size > 0:
        raise ArgumentError("step_size", "positive, in pixels", step_size)
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        logits = calls.logits(pixels)
        predicted = logits.argmax(1)
        chosen = class_indices(target, pixels)
        chosen = predicted if chosen is None else chosen
        class_logit(logits, chosen)  # raises for an unknown class before the attacks begin
        rivals = _rivals(pixels, predicted, logits.shape[1], classes, seed)
        total, count, start = torch.zeros_like(pixels), rivals.shape[1], 0
        while start < len(pixels) * count:
            pairs = torch.arange(start, min(start + calls.chunk, len(pixels) * count), device=pixels.device)
            image, rival = pairs // count, rivals.flatten()[pairs]
            total.index_add_(0, image, _path(calls, pixels[image], chosen[image], rival, steps, step_size, bounds))
            start += len(pairs)
        warn_of_zero_maps(calls, total, "the sum of Adversarial Gradient Integration")
        return total


def _rivals(images: Tensor, predicted: Tensor, total: int, classes: int, seed: int) -> Tensor:
    """N×k classes other than the predicted one, sampled without replacement."""
    rows = []
    for image_seed, own in zip(image_seeds(images, seed), predicted.tolist(), strict=True):
        order = torch.randperm(total, generator=torch.Generator().manual_seed(image_seed))
        rows.append(order[order != own][:classes])
    return torch.stack(rows).to(images.device)


def _path(
    calls: Calls, images: Tensor, target: Tensor, rival: Tensor, steps: int, step_size: float, bounds: Bounds
) -> Tensor:
    """Σ_j −∂f_y(x_j) ⊙ (x_{j+1} − x_j) for each image and its one rival class."""
    points, total = images.clone(), torch.zeros_like(images)
    active = torch.arange(len(images), device=images.device)
    for _ in range(steps):
        # log p increases with p, without its vanishing gradient.
        logits, ascent = calls.gradient(points[active], _log_probability, rival[active])
        going = logits.argmax(1) != rival[active]
        active, ascent = active[going], ascent[going]
        if len(active) == 0:
            break
        gradient = class_gradient(calls, points[active], target[active]).gradient
        assert gradient is not None
        after = points[active] + step_size * ascent.sign()
        after = after if bounds is None else after.clamp(*bounds)
        total[active] -= gradient * (after - points[active])
        points[active] = after
    return total


def _log_probability(logits: Tensor, target: Tensor) -> Tensor:
    return class_logit(logits.log_softmax(1), target)
