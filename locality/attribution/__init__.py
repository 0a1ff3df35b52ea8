"""Which pixels a model relies on: SM, IG, BSM, BIG and more, as pure functions and in Captum's calling convention.

METHODS is a plain dictionary of classes. A class is constructed with a model; `attribute` returns maps:

>>> import torch
>>> model, images = torch.nn.Flatten(), torch.tensor([[[[0.8, 0.4]]]])
>>> for name in ("SM", "IG", "BIG"):  # BIG starts at the boundary, (0.6, 0.6)
...     print(name, [round(value, 2) + 0.0 for value in METHODS[name](model).attribute(images).flatten().tolist()])
SM [1.0, 0.0]
IG [0.8, 0.0]
BIG [0.2, 0.0]
>>> sorted(METHODS)
['AGI', 'BIG', 'BSM', 'IG', 'InputXGradient', 'SM', 'SmoothGrad']
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from locality.attribution.agi import adversarial_gradient_integration as adversarial_gradient_integration
from locality.attribution.all_at_once import attribute_all as attribute_all
from locality.attribution.boundary_gradients import boundary_integrated_gradients as boundary_integrated_gradients
from locality.attribution.boundary_gradients import boundary_saliency as boundary_saliency
from locality.attribution.captum_classes import AGI as AGI
from locality.attribution.captum_classes import BIG as BIG
from locality.attribution.captum_classes import BSM as BSM
from locality.attribution.captum_classes import IG as IG
from locality.attribution.captum_classes import SM as SM
from locality.attribution.captum_classes import InputXGradient as InputXGradient
from locality.attribution.captum_classes import SmoothGrad as SmoothGrad
from locality.attribution.captum_methods import CaptumMethod as CaptumMethod
from locality.attribution.captum_methods import check_name
from locality.attribution.integrated_gradients import integrated_gradients as integrated_gradients
from locality.attribution.quantus import explain as explain
from locality.attribution.saliency import input_x_gradient as input_x_gradient
from locality.attribution.saliency import saliency_map as saliency_map
from locality.attribution.smoothgrad import smooth_gradient as smooth_gradient
from locality.errors import unknown_choice
from locality.model_calls import Model

METHODS: dict[str, type] = {
    "SM": SM,
    "InputXGradient": InputXGradient,
    "IG": IG,
    "BSM": BSM,
    "BIG": BIG,
    "SmoothGrad": SmoothGrad,
    "AGI": AGI,
}
Factory = Callable[..., Any]  # model ↦ something with attribute(inputs, target=…)


class FunctionMethod:
    """A function (model, images, target) → maps with the interface of the other methods."""

    def __init__(self, model: Model, function: Callable[..., Tensor], **options: Any) -> None:
        self.model, self.function, self.options = model, function, options

    def attribute(self, inputs: Tensor, target: Any = None, **options: Any) -> Tensor:
        return self.function(self.model, inputs, target, **(self.options | options))


def method(name: str | type | Callable[..., Any]) -> Factory:
    """The class behind a name in METHODS or `captum:NAME[@layer]`; constructed with a model, it returns maps.

    A class (or a `functools.partial` of one) is returned as it is; any other callable is a function
    (model, images, target) → maps.

    >>> method("BIG").__name__
    'BIG'
    >>> method("captum:DeepLift").keywords
    {'name': 'DeepLift', 'layer': None}
    """
    if not isinstance(name, str):
        made = name.func if isinstance(name, functools.partial) else name
        if isinstance(made, type):
            return name
        if callable(name):
            return functools.partial(FunctionMethod, function=name)
        raise TypeError(f"`method` must be a name, a class or a function, got {type(name).__name__}")
    if name in METHODS:
        return METHODS[name]
    if name.startswith("captum:"):
        kind, _, layer = name.removeprefix("captum:").partition("@")
        check_name(kind, layer or None)
        return functools.partial(CaptumMethod, name=kind, layer=layer or None)
    raise unknown_choice("method", name, METHODS, also="captum:NAME")
