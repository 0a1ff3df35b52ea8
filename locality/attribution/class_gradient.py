"""The class logit f_y and its gradient at some points: what every method is made of."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from locality.model_calls import Calls
from locality.model_calls.targets import class_logit


@dataclass(frozen=True, eq=False)
class ClassGradient:
    """The class logit at some points and, if it was computed, its gradient."""

    target: Tensor  # N int64
    logit: Tensor  # N
    gradient: Tensor | None  # N×C×H×W

    def rows(self, chosen: Tensor) -> ClassGradient:
        gradient = None if self.gradient is None else self.gradient[chosen]
        return ClassGradient(self.target[chosen], self.logit[chosen], gradient)


def class_gradient(calls: Calls, points: Tensor, target: Tensor | None, with_gradient: bool = True) -> ClassGradient:
    """f_y and ∂f_y/∂x at `points`; without a target y is the class predicted there, at no extra cost.

    `with_gradient=False` computes the logit alone, by a forward pass.
    """
    if not with_gradient:
        logits = calls.logits(points)
        target = logits.argmax(1) if target is None else target
        return ClassGradient(target, class_logit(logits, target), None)
    if target is None:
        logits, gradients = calls.gradient(points, lambda scores: class_logit(scores, scores.argmax(1)))
        target = logits.argmax(1)
    else:
        logits, gradients = calls.gradient(points, class_logit, target)
    return ClassGradient(target, class_logit(logits, target), gradients)


def warn_of_zero_maps(calls: Calls, gradient: Tensor, what: str) -> None:
    """Warn where a gradient is zero in every pixel: such a map carries no information about the image."""
    zero = int((gradient.flatten(1) == 0).all(1).sum())
    if zero:
        calls.warn(
            f"{what} is zero in every pixel for {zero} of {len(gradient)} images: the model's class logit does not change "
            "with the pixels there (constant, saturated or detached output)"
        )
