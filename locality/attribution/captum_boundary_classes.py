"""The methods that need a boundary point, in Captum's calling convention: `BIG(model).attribute(images, target=classes)`.

`boundary=` takes known points; otherwise `search` finds them with the `options` of the constructor. Maps are `nan` where no
boundary was found, unless `on_missing="last"`. BIG and BDeepLIFT, whose baseline is the boundary, want arguments by name.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from locality.attribution.boundary_gradients import (
    OnMissing,
    Points,
    SearchName,
    boundary_for,
    boundary_integrated_gradients,
    boundary_saliency,
)
from locality.attribution.captum_convention import (
    Inputs,
    PathAttribution,
    PixelAttribution,
    WithDelta,
    as_given,
    captum_method,
    one_tensor,
    refuse_positional,
)
from locality.attribution.deep_lift import boundary_deep_lift
from locality.attribution.integrated_gradients import Points as PathPoints
from locality.attribution.smoothgrad import boundary_smooth_gradient, check_noise
from locality.boundary import SEARCHES
from locality.boundary.search import resolve_search
from locality.model_calls import Calls, Model, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.targets import Target


class _Search:
    """How a method finds its boundary points, and what it does where there are none."""

    def __init__(self, search: SearchName, on_missing: OnMissing, seed: int, options: dict[str, Any]) -> None:
        resolve_search(search, SEARCHES)  # raises for an unknown name
        self.search, self.on_missing, self.seed, self.options = search, on_missing, seed, options

    def points(self, calls: Calls, images: Tensor, boundary: Points | None, bounds: Bounds) -> Points:
        return boundary_for(calls, images, boundary, self.search, self.seed, bounds, self.on_missing, **self.options)


class BSM(PixelAttribution):
    """Boundary saliency map: the gradient at the nearest point across the decision boundary.

    >>> import torch
    >>> BSM(lambda images: images.flatten(1) * 2).attribute(torch.tensor([[[[0.8, 0.4]]]])).tolist()
    [[[[2.0, 0.0]]]]
    """

    def __init__(
        self,
        model: Model,
        *,
        search: SearchName = "fast",
        on_missing: OnMissing = "nan",
        seed: int = 0,
        bounds: Bounds = UNIT,
        **options: Any,
    ) -> None:
        super().__init__(model, bounds=bounds)
        self._search = _Search(search, on_missing, seed, options)

    @captum_method
    def attribute(
        self,
        inputs: Inputs,
        target: Target = None,
        *,
        boundary: Points | None = None,
        additional_forward_args: object = None,
    ) -> Inputs:
        """Maps of the inputs' shape and dtype; `target` is one class or one per image (None: the predicted one).

        `boundary` is the result of `find_boundary` for these images, or a tensor of points; None searches for them.
        """
        images = one_tensor(inputs, additional_forward_args)
        with open_model(self.forward_func, working_copy(images, self.bounds), bounds=self.bounds) as calls:
            edge = self._search.points(calls, images, boundary, self.bounds)
            return as_given(
                boundary_saliency(calls, images, edge, target, on_missing=self._search.on_missing, bounds=self.bounds),
                inputs,
            )


class BoundaryPath(PathAttribution):
    """Base of BIG and BDeepLIFT, whose maps have a baseline: `multiply_by_inputs=False` leaves x − x′ out."""

    def __init__(
        self,
        model: Model,
        *,
        search: SearchName = "fast",
        on_missing: OnMissing = "nan",
        seed: int = 0,
        multiply_by_inputs: bool = True,
        bounds: Bounds = UNIT,
        **options: Any,
    ) -> None:
        super().__init__(model, multiply_by_inputs=multiply_by_inputs, bounds=bounds)
        self._search = _Search(search, on_missing, seed, options)


class BIG(BoundaryPath):
    """Boundary-based Integrated Gradients: IG from the nearest point across the decision boundary.

    >>> import torch
    >>> BIG(lambda images: images.flatten(1)).attribute(torch.tensor([[[[0.8, 0.4]]]])).flatten()  # from (0.6, 0.6)
    tensor([0.2000, -0.0000])
    """

    @captum_method
    def attribute(
        self,
        inputs: Inputs,
        *unnamed: object,
        target: Target = None,
        boundary: Points | None = None,
        n_steps: PathPoints = 20,
        method: str = "trapezoid",
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
        additional_forward_args: object = None,
    ) -> WithDelta:
        """Maps of the inputs' shape and dtype; `target` is one class or one per image (None: the predicted one).

        `boundary` is the result of `find_boundary` for these images, or a tensor of points; None searches for them.
        `n_steps`, `method`, `internal_batch_size` and `return_convergence_delta` are those of IG.
        """
        refuse_positional("BIG", unnamed)
        images = one_tensor(inputs, additional_forward_args)
        with open_model(self.forward_func, working_copy(images, self.bounds), internal_batch_size, self.bounds) as calls:
            edge = self._search.points(calls, images, boundary, self.bounds)
            path = boundary_integrated_gradients(
                calls, images, edge, target, n_steps, method, on_missing=self._search.on_missing, bounds=self.bounds
            )
        return self._result(path, inputs, return_convergence_delta)


class BSG(PixelAttribution):
    """Boundary SmoothGrad: the mean gradient under Gaussian noise around the boundary point; 50 samples, σ = 0.15.

    >>> import torch
    >>> BSG(lambda images: images.flatten(1) * 2, samples=4).attribute(torch.tensor([[[[0.8, 0.4]]]])).tolist()
    [[[[2.0, 0.0]]]]
    """

    def __init__(
        self,
        model: Model,
        *,
        samples: int = 50,
        sigma: float = 0.15,
        search: SearchName = "fast",
        on_missing: OnMissing = "nan",
        seed: int = 0,
        bounds: Bounds = UNIT,
        **options: Any,
    ) -> None:
        super().__init__(model, bounds=bounds)
        check_noise(samples, sigma)  # before the search
        self.samples, self.sigma = samples, sigma
        self._search = _Search(search, on_missing, seed, options)

    @captum_method
    def attribute(
        self,
        inputs: Inputs,
        target: Target = None,
        *,
        boundary: Points | None = None,
        internal_batch_size: int | None = None,
        additional_forward_args: object = None,
    ) -> Inputs:
        """Maps of the inputs' shape and dtype; `target` is one class or one per image (None: the predicted one).

        `boundary` is the result of `find_boundary` for these images, or a tensor of points; None searches for them.
        `internal_batch_size` noisy images go through the model at once (None: chosen for speed).
        """
        images = one_tensor(inputs, additional_forward_args)
        with open_model(self.forward_func, working_copy(images, self.bounds), internal_batch_size, self.bounds) as calls:
            edge = self._search.points(calls, images, boundary, self.bounds)
            noise: dict[str, Any] = {"samples": self.samples, "sigma": self.sigma, "seed": self._search.seed}
            return as_given(
                boundary_smooth_gradient(
                    calls, images, edge, target, **noise, on_missing=self._search.on_missing, bounds=self.bounds
                ),
                inputs,
            )


class BDeepLIFT(BoundaryPath):
    """Boundary DeepLIFT: DeepLIFT whose reference is the nearest point across the decision boundary.

    It needs no hooks: functional, repeated and in-place activations work. A network with a layer that has no rule
    (`rescale_rules.py`) is an error. `multiply_by_inputs=False` returns the multipliers alone.

    >>> import torch
    >>> BDeepLIFT(lambda images: images.flatten(1)).attribute(torch.tensor([[[[0.8, 0.4]]]])).flatten()  # from (0.6, 0.6)
    tensor([0.2000, -0.0000])
    """

    @captum_method
    def attribute(
        self,
        inputs: Inputs,
        *unnamed: object,
        target: Target = None,
        boundary: Points | None = None,
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
        additional_forward_args: object = None,
    ) -> WithDelta:
        """Maps of the inputs' shape and dtype; `target` is one class or one per image (None: the predicted one).

        `boundary` is the result of `find_boundary` for these images, or a tensor of points; None searches for them.
        `internal_batch_size` images go through the model at once. `return_convergence_delta=True` returns (maps, delta).
        """
        refuse_positional("BDeepLIFT", unnamed)
        images = one_tensor(inputs, additional_forward_args)
        with open_model(self.forward_func, working_copy(images, self.bounds), internal_batch_size, self.bounds) as calls:
            edge = self._search.points(calls, images, boundary, self.bounds)
            path = boundary_deep_lift(calls, images, edge, target, on_missing=self._search.on_missing, bounds=self.bounds)
        return self._result(path, inputs, return_convergence_delta)
