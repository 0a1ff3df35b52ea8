"""The methods in Quantus' calling convention: numpy images and classes in, numpy maps out."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from locality.model_calls import Model


def explain(
    model: Model,
    inputs: ArrayLike,
    targets: ArrayLike | None,
    method: str | type | Callable[..., Any] = "BIG",
    device: str | torch.device | None = None,
    **options: Any,
) -> NDArray[np.float32]:
    """Maps of the inputs' shape, for use as Quantus' `explain_func`, which adds `device` and the user's `options`.

    `options` may be those of the method's constructor and of its `attribute`; their names decide. Quantus' sensitivity
    metrics add noise to the inputs: pass `bounds=None` with them.

    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    >>> explain(model, np.full((2, 3, 2, 2), 0.5), np.array([0, 2]), method="SM").shape
    (2, 3, 2, 2)
    """
    from locality.attribution import method as factory_of  # here, because that file imports this one

    factory = factory_of(method)
    of_attribute = set(inspect.signature(_constructed_class(factory).attribute).parameters)
    later = {name: options.pop(name) for name in list(options) if name in of_attribute}
    images = torch.as_tensor(np.asarray(inputs), dtype=torch.float32, device=device)
    classes = None if targets is None else torch.as_tensor(np.asarray(targets), device=device)
    maps = factory(model, **options).attribute(images, target=classes, **later)
    return np.asarray(maps.detach().cpu().numpy(), dtype=np.float32)


def _constructed_class(factory: Callable[..., Any]) -> Any:
    return factory.func if isinstance(factory, functools.partial) else factory
