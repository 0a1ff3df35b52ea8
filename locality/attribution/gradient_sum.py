"""A weighted sum of gradients at several points an image, in memory that does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from locality.model_calls import Calls
from locality.model_calls.targets import class_logit

Places = Callable[[Tensor, Tensor], Tensor]  # image numbers, sample numbers ↦ points


def gradient_sum(calls: Calls, images: Tensor, target: Tensor, weights: Tensor, places: Places) -> Tensor:
    """N×C×H×W: Σ_j w_j ∂f_y at the point `places(i, j)` of image i.

    All (image, sample) pairs stand in one row, image by image, and go through the model as many at a time as fit; the
    samples of an image are therefore asked for in order, whatever the batch.
    """
    total = torch.zeros_like(images)
    weights = weights.to(images)
    samples, start = len(weights), 0
    while start < len(images) * samples:
        pairs = torch.arange(start, min(start + calls.chunk, len(images) * samples), device=images.device)
        image, sample = pairs // samples, pairs % samples
        _, gradient = calls.gradient(places(image, sample), class_logit, target[image])
        total.index_add_(0, image, gradient * weights[sample].view(-1, 1, 1, 1))
        start += len(pairs)
    return total
