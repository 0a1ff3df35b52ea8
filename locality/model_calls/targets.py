"""The class that is attributed: its index for each image, and its logit."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from locality.errors import ArgumentError, ArgumentTypeError
from locality.model_calls.checks import check_target

Target = int | Sequence[int] | Tensor | None  # None: the class the model predicts for the image


def class_indices(target: Target, images: Tensor, name: str = "target") -> Tensor | None:
    """`target` as one int64 class per image on the images' device; None stays None. Errors call it `name`.

    >>> class_indices(3, torch.zeros(2, 3, 8, 8)).tolist()
    [3, 3]
    """
    if target is None:
        return None
    try:
        indices = torch.as_tensor(target, device=images.device)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentTypeError(name, "whole class numbers", target, "pass an int, a list or an int64 tensor") from None
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
        raise ArgumentTypeError(name, "whole class numbers", indices.dtype, "pass an int, a list or an int64 tensor")
    indices = indices.long().reshape(-1)
    if len(indices) not in (1, len(images)):
        raise ArgumentError(name, f"one class or one for each of the {len(images)} images", len(indices))
    return indices.expand(len(images))


def class_logit(logits: Tensor, target: Tensor) -> Tensor:
    """N: f_y, the logit of each image's class."""
    check_target(target, logits.shape[1])
    return logits.gather(1, target[:, None])[:, 0]
