"""DeepLIFT, and Boundary DeepLIFT, whose reference is the nearest point across the decision boundary."""

from __future__ import annotations

from torch import Tensor

from locality.attribution.baselines import Baseline, baseline_images
from locality.attribution.boundary_gradients import OnMissing, Points, defined_rows, spread
from locality.attribution.class_gradient import class_gradient, warn_of_zero_maps
from locality.attribution.rescale_rules import RescaleRules, no_rule
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.cpu_layers import plain_layers
from locality.model_calls.targets import Target, class_indices, class_logit
from locality.types import PathMaps

TOLERANCE = 0.01  # of |f(x) − f(b)|: a larger gap means that a layer has no rule


def deep_lift(
    model: Model | Calls,
    images: Tensor,
    target: Target = None,
    baseline: Baseline = "black",
    *,
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> PathMaps:
    """(x − b) ⊙ m, m the multipliers of DeepLIFT's rescale rule (Shrikumar et al. 2017), which replace the gradient.

    The map sums to f_y(x) − f_y(b); a network where it does not, by more than 1 %, has a layer without a rule
    (`rescale_rules.py`) and is an error. `integral` is m. It costs one gradient and two forward passes per image.

    >>> import torch
    >>> squares = lambda images: images.flatten(1) ** 2
    >>> deep_lift(squares, torch.tensor([[[[0.5, 1.0]]]]), target=1).maps.flatten().tolist()
    [0.0, 1.0]
    """
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        references = baseline_images(baseline, pixels, bounds)
        chosen = class_gradient(calls, pixels, class_indices(target, pixels), with_gradient=False).target
        return multiplied(calls, pixels, references, chosen)


def boundary_deep_lift(
    model: Model | Calls,
    images: Tensor,
    boundary: Points,
    target: Target = None,
    *,
    on_missing: OnMissing = "nan",
    bounds: Bounds = UNIT,
    chunk: int | None = None,
) -> PathMaps:
    """DeepLIFT whose reference is the boundary point x′: the map sums to f_y(x) − f_y(x′), y the class of the image.

    The ICML 2022 paper has no formula; this is what its authors' code computes. `nan` where no boundary was found.

    >>> import torch
    >>> model, images = torch.nn.Flatten(), torch.tensor([[[[0.8, 0.4]]]])
    >>> boundary_deep_lift(model, images, torch.tensor([[[[0.6, 0.6]]]])).maps.flatten()
    tensor([0.2000, -0.0000])
    """
    pixels = working_copy(images, bounds)
    with open_model(model, pixels, chunk, bounds) as calls:
        rows, points = defined_rows(boundary, pixels, on_missing)
        chosen = class_gradient(calls, pixels, class_indices(target, pixels), with_gradient=False).target
        return multiplied_from(calls, pixels, rows, points, chosen)


def multiplied_from(calls: Calls, images: Tensor, rows: Tensor, points: Tensor, target: Tensor) -> PathMaps:
    """The maps of the images `rows` with these points as references; `nan` for the others."""
    if len(rows) == 0:
        empty = spread(images[rows], rows, len(images))
        return PathMaps(empty, empty, empty.flatten(1)[:, 0])
    path = multiplied(calls, images[rows], points, target[rows])
    return PathMaps(*(spread(part, rows, len(images)) for part in (path.maps, path.integral, path.delta)))


def multiplied(calls: Calls, images: Tensor, references: Tensor, target: Tensor) -> PathMaps:
    """(x − b) ⊙ m, or an error where the map does not sum to f_y(x) − f_y(b)."""
    # Before the rules apply: `calls` finds out with its first images which memory format the model takes.
    at_reference = class_logit(calls.logits(references), target)

    def run(chunk: Tensor, reference: Tensor, _: Tensor) -> Tensor:
        rules = RescaleRules()
        with plain_layers():
            with rules.reading():
                calls.run(reference.clone())
            with rules.multiplying():
                return calls.run(chunk)

    calls.forwards += len(images)  # of the references, inside `run`
    logits, multipliers = calls.gradient(images, lambda logits, _, y: class_logit(logits, y), references, target, run=run)
    warn_of_zero_maps(calls, multipliers, "the multiplier of DeepLIFT")
    maps = (images - references) * multipliers
    at_image = class_logit(logits, target)
    delta = maps.flatten(1).sum(1) - (at_image - at_reference)
    rounding = calls.rounding * (at_image.abs() + at_reference.abs())
    wrong = delta.abs() > TOLERANCE * (at_image - at_reference).abs() + rounding
    if wrong.any():
        change, total = float((at_image - at_reference)[wrong][0]), float(maps[wrong][0].sum())
        raise no_rule(f"one whose map sums to {total:.3g} where the logit changes by {change:.3g}")
    return PathMaps(maps, multipliers, delta)
