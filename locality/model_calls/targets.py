"""The class that is attributed: its index, its logit and the gradient of its logit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from locality.model_calls import Calls
from locality.model_calls.checks import check_target

Target = int | Sequence[int] | Tensor | None  # None: the class the model predicts for the image


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The class logit at some points, and its gradient where it was asked for."""

    target: Tensor  # N int64
    logit: Tensor  # N
    gradient: Tensor | None  # N×C×H×W

    def rows(self, chosen: Tensor) -> Evaluation:
        gradient = None if self.gradient is None else self.gradient[chosen]
        return Evaluation(self.target[chosen], self.logit[chosen], gradient)


def class_indices(target: Target, images: Tensor) -> Tensor | None:
    """`target` as one int64 class an image on the images' device; None stays None."""
    if target is None:
        return None
    try:
        indices = torch.as_tensor(target, device=images.device)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"`target` must be whole class numbers, got {target!r}: pass an int, a list or an int64 tensor"
        ) from None
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
        raise TypeError(f"`target` must be whole class numbers, got {indices.dtype}: pass an int, a list or an int64 tensor")
    indices = indices.long().reshape(-1)
    if len(indices) not in (1, len(images)):
        raise ValueError(f"`target` must be one class or one for each of the {len(images)} images, got {len(indices)}")
    return indices.expand(len(images))


def class_logit(logits: Tensor, target: Tensor) -> Tensor:
    """N: f_y, the logit of each image's class."""
    check_target(target, logits.shape[1])
    return logits.gather(1, target[:, None])[:, 0]


def evaluation(calls: Calls, points: Tensor, target: Tensor | None, gradient: bool = True) -> Evaluation:
    """f_y and ∂f_y/∂x at `points`; without a target y is the class predicted there, which costs nothing more."""
    if not gradient:
        logits = calls.logits(points)
        chosen = logits.argmax(1) if target is None else target
        return Evaluation(chosen, class_logit(logits, chosen), None)
    if target is None:
        logits, found = calls.gradient(points, lambda scores: class_logit(scores, scores.argmax(1)))
        target = logits.argmax(1)
    else:
        logits, found = calls.gradient(points, class_logit, target)
    return Evaluation(target, class_logit(logits, target), found)


def warn_of_zeros(calls: Calls, gradient: Tensor, what: str) -> None:
    """Warn where a gradient is zero in every pixel: such a map says nothing about the image."""
    zero = int((gradient.flatten(1) == 0).all(1).sum())
    if zero:
        calls.warn(
            f"{what} is zero in every pixel for {zero} of {len(gradient)} images: the model's class logit does not change "
            "with the pixels there (constant, saturated or detached output)"
        )
