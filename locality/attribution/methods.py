"""Attribution methods by name. Importing this file imports Captum, which takes half a second; its package does not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from locality.attribution.captum_boundary_classes import BIG, BSG, BSM, BDeepLIFT
from locality.attribution.captum_classes import AGI, IG, SM, InputXGradient, SmoothGrad
from locality.attribution.captum_methods import CaptumMethod, check_name
from locality.attribution.rollout import GradientRollout, Rollout
from locality.errors import unknown_choice
from locality.model_calls import Model

METHODS: dict[str, type] = {
    "SM": SM,
    "InputXGradient": InputXGradient,
    "IG": IG,
    "BSM": BSM,
    "BIG": BIG,
    "BSG": BSG,
    "BDeepLIFT": BDeepLIFT,
    "SmoothGrad": SmoothGrad,
    "AGI": AGI,
    "Rollout": Rollout,
    "GradientRollout": GradientRollout,
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
