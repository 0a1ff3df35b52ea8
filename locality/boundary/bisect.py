"""From a point across the decision boundary back along the straight line to the image, until the boundary is reached.

Reached means: across, and by no more than float noise. There are two kinds of noise, and meeting either is enough:

- In the pixels: the piece of the line known to hold the boundary moves no pixel by more than FLOAT_NOISE.
- In the logits: the margin is below 0 by one to two times SLACK × the largest logit. A smaller one is not trusted, because a
  model rounds differently in another batch or memory layout and the point might turn out to lie on the near side there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from locality.model_calls import Calls
from locality.perturbation import margin, per_image

# Half the distance between neighbouring float32 numbers just below 1: a smaller step does not change a pixel.
FLOAT_NOISE = 2.0**-24
# What float32 networks round differently from batch to batch, relative to their largest logit.
SLACK = 3e-6
ROUNDS_BY_SECANT = 8  # three or four are enough for networks; what takes longer is halved in every other round
MAX_ROUNDS = 64  # halving a line of length 1 every other round comes below FLOAT_NOISE within 56


def bisect(
    calls: Calls,
    images: Tensor,
    points: Tensor,
    labels: Tensor,
    *,
    image_logits: Tensor | None = None,
    point_logits: Tensor | None = None,
) -> Tensor:
    """Points on the lines from `images` to `points`, still across but within float noise of the boundary.

    No image may be across; a point that is not stays where it is. Logits that are known save a forward pass each.
    The next place to look at is where the secant through the last two places meets the middle of the wanted range. Networks
    are all but linear so near the boundary, so it is met after three or four forward passes; plain halving takes 20.
    """
    image_logits = calls.logits(images) if image_logits is None else image_logits
    point_logits = calls.logits(points) if point_logits is None else point_logits
    offset = points - images
    noise = SLACK * point_logits.abs().amax(dim=1)
    tick = FLOAT_NOISE / offset.flatten(1).abs().amax(dim=1).clamp_min(FLOAT_NOISE)  # FLOAT_NOISE, as a share of the line
    # Places are shares of the line. All values are margin + 1.5 noise, so that 0 is the middle of the range where we stop.
    inside, across = torch.zeros_like(noise), torch.ones_like(noise)
    at_inside, at_across = margin(image_logits, labels) + 1.5 * noise, margin(point_logits, labels) + 1.5 * noise
    last, at_last, newest, at_newest = inside.clone(), at_inside.clone(), across.clone(), at_across.clone()
    active = torch.arange(len(images), device=images.device)
    for round_number in range(MAX_ROUNDS):
        active = active[((across - inside > tick) & (at_across < -0.5 * noise))[active]]
        if len(active) == 0:
            break
        low, high = inside[active], across[active]
        if round_number >= ROUNDS_BY_SECANT and round_number % 2 == 0:
            place = (low + high) / 2
        else:
            place = _meets_zero(newest[active], at_newest[active], last[active], at_last[active])
            chord = _meets_zero(low, at_inside[active], high, at_across[active])
            place = torch.where((place > low) & (place < high), place, chord)
        # A place beside an end of the bracket closes it when that end is right.
        edge = torch.minimum(0.9 * tick[active], (high - low) / 2)
        place = torch.minimum(torch.maximum(place, low + edge), high - edge)
        logits = calls.logits((images[active] + per_image(place) * offset[active]).clamp(*calls.limits))
        value = margin(logits, labels[active]) + 1.5 * noise[active]
        crossed = value < 0.5 * noise[active]
        across[active], at_across[active] = torch.where(crossed, place, high), torch.where(crossed, value, at_across[active])
        inside[active], at_inside[active] = torch.where(crossed, low, place), torch.where(crossed, at_inside[active], value)
        last[active], at_last[active], newest[active], at_newest[active] = newest[active], at_newest[active], place, value
    return (images + per_image(across) * offset).clamp(*calls.limits)


def _meets_zero(place: Tensor, value: Tensor, other: Tensor, other_value: Tensor) -> Tensor:
    """Where the straight line through two points of a curve is 0; nowhere (nan or inf) if it is level."""
    return place - value * (place - other) / (value - other_value)
