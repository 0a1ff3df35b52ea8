"""Captum's calling convention: the decorator, the forms of inputs and results, the base classes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from captum.attr import GradientAttribution  # type: ignore[import-untyped]
from captum.log import log_usage  # type: ignore[import-untyped]
from torch import Tensor

from locality.errors import ArgumentError
from locality.model_calls import Model
from locality.model_calls.checks import UNIT, Bounds
from locality.types import PathMaps

Inputs = Tensor | tuple[Tensor]  # maps come back in the same form
WithDelta = Inputs | tuple[Inputs, Tensor]
Method = TypeVar("Method", bound=Callable[..., Any])
# Captum's names of our arguments: an error names what the caller typed.
CAPTUM_NAMES = {
    "images": "inputs",
    "points": "n_steps",
    "rule": "method",
    "baseline": "baselines",
    "chunk": "internal_batch_size",
}


def captum_method(function: Method) -> Method:
    """Captum's decorator, typed, with errors that use Captum's names; NoiseTunnel calls the `__wrapped__` that it sets."""
    return cast(Method, log_usage()(with_captum_names(function)))


def with_captum_names(function: Method) -> Method:
    """The function with errors that use Captum's names of its arguments."""

    @functools.wraps(function)
    def renaming(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ArgumentError as error:
            if error.argument not in CAPTUM_NAMES:
                raise
            raise error.renamed(CAPTUM_NAMES[error.argument]).with_traceback(error.__traceback__) from None

    return cast(Method, renaming)


def refuse_positional(method: str, given: tuple[object, ...]) -> None:
    """Raise if anything but the inputs is unnamed: a second argument would be a target to some and a baseline to others."""
    if given:
        raise TypeError(
            f"{method}.attribute takes only `inputs` by position, got {1 + len(given)} arguments: "
            "name the others, such as target=…"
        )


class PixelAttribution(GradientAttribution):  # type: ignore[misc]
    """Base of all methods: a model on pixels and one tensor of images."""

    def __init__(self, model: Model, *, bounds: Bounds = UNIT) -> None:
        GradientAttribution.__init__(self, model)
        self.bounds = bounds


def one_tensor(inputs: Inputs, additional_forward_args: object = None) -> Tensor:
    """The images in `inputs`, a tensor or a tuple of one tensor."""
    if additional_forward_args is not None:
        hint = "locality's models take images alone, wrap yours to fix the other arguments"
        raise ArgumentError("additional_forward_args", "None", additional_forward_args, hint)
    if isinstance(inputs, tuple):
        if len(inputs) != 1:
            raise ArgumentError("inputs", "one tensor of images", f"{len(inputs)} tensors")
        return inputs[0]
    return inputs


def as_given(maps: Tensor, inputs: Inputs) -> Inputs:
    """Maps in the form and the dtype of the inputs."""
    maps = maps.to(one_tensor(inputs).dtype)
    return (maps,) if isinstance(inputs, tuple) else maps


class PathAttribution(PixelAttribution):
    """Base of IG and BIG: `multiply_by_inputs=False` returns the integral part alone."""

    def __init__(self, model: Model, *, multiply_by_inputs: bool = True, bounds: Bounds = UNIT) -> None:
        super().__init__(model, bounds=bounds)
        self._multiply_by_inputs = multiply_by_inputs

    @property
    def multiplies_by_inputs(self) -> bool:
        return self._multiply_by_inputs

    def has_convergence_delta(self) -> bool:
        return True

    def _result(self, path: PathMaps, inputs: Inputs, return_convergence_delta: bool) -> WithDelta:
        maps = as_given(path.maps if self._multiply_by_inputs else path.integral, inputs)
        return (maps, path.delta) if return_convergence_delta else maps
