"""From a point across the decision boundary back along the straight line to the image, until the boundary is reached."""

from __future__ import annotations

import torch
from torch import Tensor

from locality.model_calls import Calls

# Half the distance between neighbouring float32 numbers just below 1: a smaller step does not change a pixel.
FLOAT_NOISE = 2.0**-24
# A margin this small beside the logits has another sign in another batch or memory layout: it is not yet across.
SLACK = 3e-6
MAX_ROUNDS = 60


def rows(values: Tensor) -> Tensor:
    """N numbers as N×1×1×1, to multiply images with."""
    return values.view(-1, 1, 1, 1)


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """N: logit of the label minus the largest other logit; negative on the other side, 0 on the boundary."""
    own = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return own - others.max(dim=1).values


def bisect(calls: Calls, images: Tensor, points: Tensor, labels: Tensor) -> Tensor:
    """Points on the lines from `images` to `points`, still across but within float noise of the boundary.

    Every point given must be across and every image must not be. Regula falsi with the Illinois rule finds the crossing in
    far fewer forward passes than halving; every third round halves, so that it never gets stuck.
    """
    offset = points - images
    reach = offset.flatten(1).abs().amax(dim=1).clamp_min(FLOAT_NOISE)
    inside, across = torch.zeros_like(reach), torch.ones_like(reach)
    value_inside = margin(calls.logits(images), labels)
    logits = calls.logits(points)
    value_across = margin(logits, labels)
    noise = SLACK * logits.abs().amax(dim=1)
    last_side = torch.zeros_like(reach)
    active = torch.arange(len(images), device=images.device)
    for round_number in range(MAX_ROUNDS):
        # Finished: the step no longer changes a pixel, or the point is as near as the model's own rounding can tell.
        open_still = ((across - inside) * reach > FLOAT_NOISE) & (value_across < -2 * noise)
        active = active[open_still[active]]
        if len(active) == 0:
            break
        low, high, at_low, at_high = inside[active], across[active], value_inside[active], value_across[active]
        share = (at_low / (at_low - at_high)).nan_to_num(0.5).clamp(0.02, 0.98)
        middle = low + (high - low) * (0.5 if round_number % 3 == 2 else share)
        logits = calls.logits(images[active] + rows(middle) * offset[active])
        at_middle = margin(logits, labels[active])
        crossed = at_middle < -noise[active]
        side = torch.where(crossed, 1.0, -1.0)
        repeated = side == last_side[active]
        across[active] = torch.where(crossed, middle, high)
        inside[active] = torch.where(crossed, low, middle)
        # Illinois: the end that did not move twice in a row counts half, which pulls the next guess towards it.
        value_across[active] = torch.where(crossed, at_middle, torch.where(repeated, at_high / 2, at_high))
        value_inside[active] = torch.where(crossed, torch.where(repeated, at_low / 2, at_low), at_middle)
        last_side[active] = side
    return images + rows(across) * offset
