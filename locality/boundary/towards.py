"""The boundary of one class: a model seen as two classes, `to` and all others."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor

from locality.model_calls import Calls

OTHERS, TO = 0, 1  # the two classes


def two_classes(logits: Tensor, to: int) -> Tensor:
    """N×2: the largest logit of all classes but `to`, and the logit of `to`.

    >>> two_classes(torch.tensor([[3.0, 1.0, 2.0]]), to=2).tolist()
    [[3.0, 2.0]]
    """
    others = logits.index_fill(1, torch.tensor([to], device=logits.device), -torch.inf).amax(dim=1)
    return torch.stack([others, logits[:, to]], dim=1)


@contextmanager
def towards(calls: Calls, to: int) -> Generator[None, None, None]:
    """Inside the block the model has two classes, so that every search finds the boundary of `to`, and no other."""
    run = calls.run
    calls.run = lambda pixels: two_classes(run(pixels), to)
    try:
        yield
    finally:
        calls.run = run
