"""What our classes share with Captum's: the decorator, the forms of inputs and results, the base classes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from captum.attr import GradientAttribution  # type: ignore[import-untyped]
from captum.log import log_usage  # type: ignore[import-untyped]
from torch import Tensor

from locality.model_calls import Model
from locality.model_calls.checks import UNIT, Bounds
from locality.types import PathMaps

Inputs = Tensor | tuple[Tensor]  # given back in the same form
WithDelta = Inputs | tuple[Inputs, Tensor]
Method = TypeVar("Method", bound=Callable[..., Any])
# Our arguments as Captum calls them: an error names what the caller typed.
CAPTUMS_WORDS = {
    "`points`": "`n_steps`",
    "`rule`": "`method`",
    "`baseline`": "`baselines`",
    "`chunk`": "`internal_batch_size`",
}


def captum_method(function: Method) -> Method:
    """Captum's decorator, typed; NoiseTunnel calls the `__wrapped__` that it leaves."""

    @functools.wraps(function)
    def in_captums_words(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError) as error:
            ours, must, rest = str(error).partition(" must ")
            if must and ours in CAPTUMS_WORDS:
                error.args = (CAPTUMS_WORDS[ours] + must + rest,)
            raise

    return cast(Method, log_usage()(in_captums_words))


class PixelAttribution(GradientAttribution):  # type: ignore[misc]
    """What all methods share: a model on pixels and one tensor of images."""

    def __init__(self, model: Model, *, bounds: Bounds = UNIT) -> None:
        GradientAttribution.__init__(self, model)
        self.bounds = bounds


def one_tensor(inputs: Inputs, additional_forward_args: object = None) -> Tensor:
    """The images in `inputs`, a tensor or a tuple of one, without what the caller attached to them."""
    if additional_forward_args is not None:
        raise ValueError(
            "`additional_forward_args` must be None: locality's models take images alone, wrap yours to fix the rest"
        )
    if isinstance(inputs, tuple):
        if len(inputs) != 1:
            raise ValueError(f"`inputs` must be one tensor of images, got a tuple of {len(inputs)}")
        return inputs[0]
    return inputs


def as_given(maps: Tensor, inputs: Inputs) -> Inputs:
    """Maps in the form and the dtype of the inputs."""
    maps = maps.to(one_tensor(inputs).dtype)
    return (maps,) if isinstance(inputs, tuple) else maps


class PathAttribution(PixelAttribution):
    """What IG and BIG share: `multiply_by_inputs=False` gives the integral part alone."""

    def __init__(self, model: Model, *, multiply_by_inputs: bool = True, bounds: Bounds = UNIT) -> None:
        super().__init__(model, bounds=bounds)
        self._multiply_by_inputs = multiply_by_inputs

    @property
    def multiplies_by_inputs(self) -> bool:
        return self._multiply_by_inputs

    def has_convergence_delta(self) -> bool:
        return True

    def _result(self, found: PathMaps, inputs: Inputs, return_convergence_delta: bool) -> WithDelta:
        maps = as_given(found.maps if self._multiply_by_inputs else found.integral, inputs)
        return (maps, found.delta) if return_convergence_delta else maps
