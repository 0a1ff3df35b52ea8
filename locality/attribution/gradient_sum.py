"""A weighted sum of gradients at several points per image, in memory that does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from locality.model_calls import Calls
from locality.model_calls.targets import class_logit
from locality.perturbation import per_image

PointsOf = Callable[[Tensor, Tensor], Tensor]  # image indices, sample indices ↦ points


def gradient_sum(calls: Calls, images: Tensor, target: Tensor, weights: Tensor, points_of: PointsOf) -> Tensor:
    """N×C×H×W: Σ_j w_j ∂f_y at the point `points_of(i, j)` of image i.

    All (image, sample) pairs form one sequence, image by image, and pass through the model in chunks. The samples of an
    image are therefore requested in order, whatever the batch.
    """
    total = torch.zeros_like(images)
    weights = weights.to(images)
    samples, start = len(weights), 0
    while start < len(images) * samples:
        pairs = torch.arange(start, min(start + calls.chunk, len(images) * samples), device=images.device)
        image, sample = pairs // samples, pairs % samples
        _, gradient = calls.gradient(points_of(image, sample), class_logit, target[image])
        total.index_add_(0, image, gradient * per_image(weights[sample]))
        start += len(pairs)
    return total
