"""Where a model runs."""

from __future__ import annotations

import copy

import torch
from torch import nn

from locality.model_calls import Model, model_device


def on_device(model: Model, device: torch.device | str | None, default: torch.device) -> tuple[Model, torch.device]:
    """The model on `device`, a copy if it is on another, and the device itself.

    Without a device, the model stays where it is; `default` is the device of a model without parameters and buffers.

    >>> on_device(nn.Linear(2, 2), None, torch.device("meta"))[1]
    device(type='cpu')
    """
    current = model_device(model) or default
    wanted = current if device is None else torch.empty(0, device=device).device  # "cuda" becomes "cuda:0"
    if isinstance(model, nn.Module) and wanted != current:
        model = copy.deepcopy(model).to(wanted)
    return model, wanted
