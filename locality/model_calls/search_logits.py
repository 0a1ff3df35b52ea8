"""What a search sees of a model: logits of an ordinary scale, and gradients that are numbers.

Searches contain absolute constants (the sharpness of a smooth margin starts at 1, Carlini and Wagner's constant at 1e-3) and
judge rounding by the largest logit. Neither suits logits around 1e-10 or 1e5. Predictions and boundaries do not change when
all logits of an image are multiplied by one number or shifted by another, so extreme logits are: by a power of two, which
loses no digit, and by the largest logit. Ordinary logits stay as they are, to the bit.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from locality.model_calls import Calls

SPREAD_RANK = 5  # spread: the largest logit minus the fifth largest; the smallest may be masks such as −1e9
ORDINARY_SPREAD = (2.0**-16, 2.0**16)  # not rescaled; of two classes the spread is the margin, which may well be small
RESCALED_EXPONENT = 4  # rescaled logits have a spread from 8 to 16, as those of trained networks have
LARGEST_OFFSET = 2.0**11  # of the largest logit, in spreads: beyond it the offset is subtracted
MAX_EXPONENT = 120  # powers of two that float32 holds with room to spare
LARGEST_LOGIT = 1e30  # of rescaled logits
UNSTEADY = 1e-3  # of the largest logit: a larger difference between two calls is not rounding
# Kinds of warnings, each given once.
UNDEFINED_GRADIENTS, UNUSUAL_LOGITS, UNSTEADY_ANSWERS = "undefined gradients", "unusual logits", "unsteady answers"


class LogitScale(NamedTuple):
    """How the logits of some images are changed: logits ↦ (logits − their largest, if centred) · 2^exponent."""

    exponent: int = 0
    centred: bool = False

    def of(self, logits: Tensor) -> Tensor:
        """The changed logits; the same tensor where nothing changes."""
        if self == LogitScale():
            return logits
        if self.centred:
            logits = logits - logits.detach().amax(dim=1, keepdim=True)
        return (logits * 2.0**self.exponent).clamp(-LARGEST_LOGIT, LARGEST_LOGIT)


def logit_scales(logits: Tensor) -> list[LogitScale]:
    """The change for each image, from its own logits alone, so that it does not depend on the batch.

    >>> logits = torch.tensor([[3.0, 1.0], [2.0**-20, 0.0], [100003.0, 100001.0]])
    >>> [tuple(scale) for scale in logit_scales(logits)]  # 2 is ordinary, 2^-20 becomes 2^3, 100003 is subtracted
    [(0, False), (23, False), (0, True)]
    """
    largest = logits.double().topk(min(SPREAD_RANK, logits.shape[1]), dim=1).values
    spread = largest[:, 0] - largest[:, -1]
    ordinary = (spread == 0) | ((spread >= ORDINARY_SPREAD[0]) & (spread <= ORDINARY_SPREAD[1]))
    exponents = torch.where(
        ordinary, 0, (RESCALED_EXPONENT - torch.frexp(spread).exponent).clamp(-MAX_EXPONENT, MAX_EXPONENT)
    )
    centred = (spread > 0) & (largest[:, 0].abs() > LARGEST_OFFSET * spread)
    return [LogitScale(*pair) for pair in zip(exponents.tolist(), centred.tolist(), strict=True)]


@contextmanager
def search_logits(calls: Calls, images: Tensor, logits: Tensor, scale: LogitScale) -> Generator[None, None, None]:
    """Inside the block `calls` changes logits by `scale`, replaces gradients that are no numbers by 0, and warns.

    `logits` are the unchanged ones of `images`. The search itself evaluates the first image again, at no extra cost: the
    block warns if the model answers differently.
    """
    run, expected = calls.run, logits[0]
    repeated = False
    if scale != LogitScale():
        calls.warn(_scale_text(logits, scale), UNUSUAL_LOGITS)

    def changed(pixels: Tensor) -> Tensor:
        nonlocal repeated
        if pixels.requires_grad:
            pixels.register_hook(lambda gradient: _defined(calls, gradient))
        # Before the call, because a model may begin with an in-place operation.
        again = not repeated and torch.equal(pixels[0].detach(), images[0])
        answer = run(pixels)
        if again:
            repeated = True
            _compare(calls, expected, answer.detach()[0])
        return scale.of(answer)

    calls.run = changed
    try:
        yield
    finally:
        calls.run = run


def _scale_text(logits: Tensor, scale: LogitScale) -> str:
    smallest, largest = (float(value) for value in torch.aminmax(logits[0]))
    return (
        f"`model` returns logits of an unusual {'offset' if scale.exponent == 0 else 'scale'} (from {smallest:.4g} to "
        f"{largest:.4g} for one image): the search rescales them, but digits that the model rounded away are lost"
    )


def _defined(calls: Calls, gradient: Tensor) -> Tensor | None:
    """The gradient with 0 in place of nan and inf; None, which changes nothing, where there are none."""
    if bool(torch.isfinite(gradient).all()):
        return None
    calls.warn(
        "`model` has gradients of nan or inf at some points: they count as 0, so that distances may be too long (look for "
        "sqrt, log, norm or a division at 0 in the model)",
        UNDEFINED_GRADIENTS,
    )
    return gradient.nan_to_num(0.0, 0.0, 0.0)


def _compare(calls: Calls, expected: Tensor, answer: Tensor) -> None:
    difference, largest = float((answer - expected).abs().max()), float(expected.abs().max())
    if difference > max(UNSTEADY, calls.rounding) * largest:
        calls.warn(
            f"`model` answers differently when called again (logits of the same image differ by {difference:.2g}): its "
            "boundary moves from call to call, and distances mean little (does it use dropout or noise in eval mode?)",
            UNSTEADY_ANSWERS,
        )
