"""What a model decides: a class per image, or an abstention; and whether the decision is right."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from locality.types import ABSTAINED


def decisions(model: object, logits: Tensor) -> Tensor:
    """N int64: the class with the largest logit, −1 where the model abstains.

    A model that abstains has a method `abstains(logits) -> N bool`; any other always decides.

    >>> decisions(torch.nn.Flatten(), torch.tensor([[0.1, 0.7], [0.9, 0.2]])).tolist()
    [1, 0]
    """
    predictions = logits.argmax(dim=1)
    abstains = getattr(model, "abstains", None)
    return predictions if abstains is None else torch.where(abstains(logits), ABSTAINED, predictions)


def correct(predictions: Tensor, accepted: Sequence[Sequence[int]]) -> Tensor:
    """N bool: the prediction is one of the labels accepted for its image; an abstention never is.

    >>> correct(torch.tensor([3, 3, -1]), [(2, 3), (2,), (1,)]).tolist()
    [True, False, False]
    """
    right = [prediction in labels for prediction, labels in zip(predictions.tolist(), accepted, strict=True)]
    return torch.tensor(right, dtype=torch.bool, device=predictions.device)
