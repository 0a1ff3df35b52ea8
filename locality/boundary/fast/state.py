"""The state of each image during the search: its current offset, its best point so far, and the gradients spent."""

from __future__ import annotations

import torch
from torch import Tensor

from locality.boundary.bisect import LOGIT_ROUNDING
from locality.boundary.search import SearchContext
from locality.perturbation import length, margin

FIRST_OVERSHOOT = 0.15  # of the first margin
MIN_RIVAL_SHARE = 0.9  # of the gradient: the tangent of a mixture of rivals is not the tangent of any boundary
MIN_CROSSING_SHARE = 0.85  # of an offset: a tangent is not trusted over a longer distance


class State:
    """What is known about each image; every field has one row per image."""

    def __init__(self, context: SearchContext, start: Tensor | None, stop_cosine: float) -> None:
        images, labels = context.images, context.labels
        self.context, self.images, self.labels, self.stop_cosine = context, images, labels, stop_cosine
        limits = context.calls.limits
        self.offset = torch.zeros_like(images) if start is None else (images + start).clamp(*limits) - images
        self.image_gradient = torch.zeros_like(images)  # of the margin, at the image
        self.best_offset = torch.zeros_like(images)
        self.best_margin = images.new_zeros(len(images))  # at the best offset
        self.best_rounding = images.new_zeros(len(images))  # part of that margin that may be rounding
        self.best_gradient = torch.zeros_like(images)  # of that margin
        self.best_rival_share = images.new_ones(len(images))  # share of the reached class in that gradient
        self.best_class = labels.clone()  # reached at the best offset
        self.best_distance = images.new_full((len(images),), torch.inf)  # of the boundary on the line to the best offset
        self.previous_distance = self.best_distance.clone()  # the best distance one round ago
        self.tangent_distance = images.new_zeros(len(images))  # distance to the boundary by the tangent at the image
        self.cosine_to_tangent = images.new_full((len(images),), -1.0)  # at the best offset
        self.first_margin = images.new_full((len(images),), torch.nan)
        self.overshoot = images.new_full((len(images),), FIRST_OVERSHOOT)
        self.gradients = torch.zeros_like(labels)  # spent
        self.images_done = 0  # as last reported to `progress`

    def keep_shorter(self, chosen: Tensor, offset: Tensor, logits: Tensor, gradient: Tensor, rival_share: Tensor) -> Tensor:
        """Keep the offsets of the chosen images that are across and shorter than the best; returns which were kept.

        Compared is the distance at which the line to the point meets the boundary according to the tangent there, if
        the share of the reached class in the margin's `gradient` is large enough; else the offset's length.
        """
        value = margin(logits, self.labels[chosen])
        share = torch.where(rival_share > MIN_RIVAL_SHARE, crossing_share(value, gradient, offset), 1.0)
        distance = length(offset, self.context.norm) * share
        rounding = 2 * LOGIT_ROUNDING * logits.abs().amax(dim=1)  # a point across by less may not be next time
        # An image that is across itself was inside when it was first evaluated: a model with random answers.
        better = (value < -rounding) & (distance > 0) & (distance < self.best_distance[chosen])
        kept = chosen[better]
        self.best_distance[kept] = distance[better]
        self.best_offset[kept] = offset[better]
        self.best_margin[kept] = value[better]
        self.best_rounding[kept] = rounding[better]
        self.best_gradient[kept] = gradient[better]
        self.best_rival_share[kept] = rival_share[better]
        self.best_class[kept] = logits[better].argmax(1)
        return better


def crossing_share(value: Tensor, gradient: Tensor, offset: Tensor) -> Tensor:
    """N: the share of an offset across at which its tangent puts the boundary; 1 where the tangent is not trusted."""
    share = 1 - value / (gradient * offset).flatten(1).sum(1)
    return torch.where((share > MIN_CROSSING_SHARE) & (share < 1), share, 1.0)
