"""From a point across the decision boundary back along the straight line to the image, until the boundary is reached.

Reached means: across, and by no more than rounding. Either of two conditions is enough:

- In the pixels: the segment known to contain the boundary moves no pixel by more than PIXEL_ROUNDING.
- In the logits: the margin is below 0 by one to two times LOGIT_ROUNDING × the largest logit. A smaller margin is not
  trusted: in another batch or memory layout the model rounds differently, and the point might lie on the near side there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from locality.model_calls import Calls
from locality.perturbation import margin, per_image

# Half the distance between neighbouring float32 numbers just below 1: a smaller step does not change a pixel.
PIXEL_ROUNDING = 2.0**-24
# Difference between the logits of a float32 network from batch to batch, relative to the largest logit.
LOGIT_ROUNDING = 3e-6
SECANT_STEPS = 8  # three or four are enough for networks; after these, every other step halves the segment
MAX_STEPS = 64  # halving a line of length 1 in every other step reaches PIXEL_ROUNDING within 56


def bisect(
    calls: Calls,
    images: Tensor,
    points: Tensor,
    labels: Tensor,
    *,
    image_logits: Tensor | None = None,
    point_logits: Tensor | None = None,
) -> Tensor:
    """Points on the lines from `images` to `points`, still across but within rounding of the boundary.

    No image may be across; a point that is not across stays where it is. Known logits save a forward pass each.
    The secant method: the next position is where the secant through the last two positions meets the middle of the accepted
    range. Near the boundary networks are almost linear, so three or four forward passes are enough; bisection takes 20.
    """
    image_logits = calls.logits(images) if image_logits is None else image_logits
    point_logits = calls.logits(points) if point_logits is None else point_logits
    offset = points - images
    noise = LOGIT_ROUNDING * point_logits.abs().amax(dim=1)
    # Positions are shares of the line. All values are margin + 1.5 noise, so that 0 is the middle of the accepted range.
    resolution = PIXEL_ROUNDING / offset.flatten(1).abs().amax(dim=1).clamp_min(PIXEL_ROUNDING)
    inside, across = torch.zeros_like(noise), torch.ones_like(noise)
    at_inside, at_across = margin(image_logits, labels) + 1.5 * noise, margin(point_logits, labels) + 1.5 * noise
    last, at_last, newest, at_newest = inside.clone(), at_inside.clone(), across.clone(), at_across.clone()
    active = torch.arange(len(images), device=images.device)
    for step in range(MAX_STEPS):
        active = active[((across - inside > resolution) & (at_across < -0.5 * noise))[active]]
        if len(active) == 0:
            break
        low, high = inside[active], across[active]
        if step >= SECANT_STEPS and step % 2 == 0:
            position = (low + high) / 2
        else:
            secant = _zero_of_line(newest[active], at_newest[active], last[active], at_last[active])
            chord = _zero_of_line(low, at_inside[active], high, at_across[active])
            position = torch.where((secant > low) & (secant < high), secant, chord)
        # A position next to an end of the bracket closes it if that end is right.
        edge = torch.minimum(0.9 * resolution[active], (high - low) / 2)
        position = torch.minimum(torch.maximum(position, low + edge), high - edge)
        logits = calls.logits((images[active] + per_image(position) * offset[active]).clamp(*calls.limits))
        value = margin(logits, labels[active]) + 1.5 * noise[active]
        crossed = value < 0.5 * noise[active]
        across[active] = torch.where(crossed, position, high)
        at_across[active] = torch.where(crossed, value, at_across[active])
        inside[active] = torch.where(crossed, low, position)
        at_inside[active] = torch.where(crossed, at_inside[active], value)
        last[active], at_last[active] = newest[active], at_newest[active]
        newest[active], at_newest[active] = position, value
    return (images + per_image(across) * offset).clamp(*calls.limits)


def _zero_of_line(position: Tensor, value: Tensor, other: Tensor, other_value: Tensor) -> Tensor:
    """Where the straight line through two points of a curve is 0; nan or inf if it is level."""
    return position - value * (position - other) / (value - other_value)
