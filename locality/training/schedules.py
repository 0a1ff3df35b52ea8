"""What changes over a run, as functions of the share of it that is done: nothing to store, nothing to restore."""

from __future__ import annotations

import math

RISING = 0.3  # share of a one-cycle run in which steps grow
FIRST = 1 / 25  # size of the first step, in units of the largest
LAST = 1 / 250_000


def one_cycle(step: int, steps: int) -> float:
    """Size of step `step` of `steps`, in units of the largest: up a cosine, then down another (Smith & Topin 2019).

    >>> [round(one_cycle(step, 101), 2) for step in (0, 29, 100)]
    [0.04, 1.0, 0.0]
    """
    top = RISING * steps - 1
    if step <= top:
        return _cosine(FIRST, 1.0, step / top)
    return _cosine(1.0, LAST, (step - top) / (steps - 1 - top))


def growing(epoch: int, epochs: int, warm_up: float) -> float:
    """Rises to 1 over the first `warm_up` of the epochs, and stays there.

    It rises by epochs, not by steps, so that it never is near 0: without an adversary a few dozen steps are enough to learn
    a cue that the rest of the run cannot unlearn (seen on `shapes`).

    >>> [round(growing(epoch, 10, 0.3), 2) for epoch in range(4)]
    [0.33, 0.67, 1.0, 1.0]
    """
    return min(1.0, (epoch + 1) / (warm_up * epochs)) if warm_up > 0 else 1.0


def _cosine(begin: float, end: float, share: float) -> float:
    return end + (begin - end) * (1 + math.cos(math.pi * share)) / 2
