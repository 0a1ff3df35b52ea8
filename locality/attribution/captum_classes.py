"""The methods in Captum's calling convention: `SM(model).attribute(images, target=classes)`.

Each class stores its settings; `attribute` unpacks Captum's arguments and calls the pure function. All are subclasses of
`GradientAttribution`, so that Captum's NoiseTunnel and Quantus accept them; NoiseTunnel's noise needs `bounds=None`.
Arguments have Captum's order: the second is `target`, for IG `baselines`. `captum_boundary_classes.py` has the methods that
start at the decision boundary.
"""

from __future__ import annotations

from typing import Any

from locality.attribution.agi import adversarial_gradient_integration
from locality.attribution.baselines import Baseline
from locality.attribution.captum_convention import (
    Inputs,
    PathAttribution,
    PixelAttribution,
    WithDelta,
    as_given,
    captum_method,
    one_tensor,
)
from locality.attribution.integrated_gradients import Points as PathPoints
from locality.attribution.integrated_gradients import integrated_gradients
from locality.attribution.saliency import input_x_gradient, saliency_map
from locality.attribution.smoothgrad import smooth_gradient
from locality.model_calls import Model
from locality.model_calls.checks import UNIT, Bounds
from locality.model_calls.targets import Target


class SM(PixelAttribution):
    """Saliency map, ∂f_y(x)/∂x; `abs=True` returns its absolute value, Captum's default for Saliency.

    >>> import torch
    >>> SM(lambda images: images.flatten(1) * 2).attribute(torch.tensor([[[[0.5, 1.0]]]]), target=0).tolist()
    [[[[2.0, 0.0]]]]
    """

    @captum_method
    def attribute(
        self, inputs: Inputs, target: Target = None, abs: bool = False, additional_forward_args: object = None
    ) -> Inputs:
        """Maps of the inputs' shape and dtype; `target` is one class or one per image (None: the predicted one)."""
        maps = saliency_map(self.forward_func, one_tensor(inputs, additional_forward_args), target, bounds=self.bounds)
        return as_given(maps.abs() if abs else maps, inputs)


class InputXGradient(PixelAttribution):
    """x ⊙ ∂f_y(x)/∂x.

    >>> import torch
    >>> InputXGradient(lambda images: images.flatten(1) * 2).attribute(torch.tensor([[[[0.5, 1.0]]]]), target=0).tolist()
    [[[[1.0, 0.0]]]]
    """

    @property
    def multiplies_by_inputs(self) -> bool:
        return True

    @captum_method
    def attribute(self, inputs: Inputs, target: Target = None, additional_forward_args: object = None) -> Inputs:
        """Maps of the inputs' shape and dtype; `target` is one class or one per image (None: the predicted one)."""
        images = one_tensor(inputs, additional_forward_args)
        return as_given(input_x_gradient(self.forward_func, images, target, bounds=self.bounds), inputs)


class IG(PathAttribution):
    """Integrated Gradients from `baselines` (black); 20 points and a trapezoid rule whose weights sum to 1.

    `baselines` is "black", "white", "mean", "blur", a number or a tensor. `method="riemann_trapezoid"` is the same rule:
    Captum's weights sum to (n − 1)/n, so ours is Captum's × n/(n − 1). The delta is signed, as Captum's.

    >>> import torch
    >>> images = torch.tensor([[[[0.5, 1.0]]]])
    >>> IG(lambda images: images.flatten(1) ** 2).attribute(images, target=1).tolist()
    [[[[0.0, 1.0]]]]
    """

    @captum_method
    def attribute(
        self,
        inputs: Inputs,
        baselines: Baseline | tuple[Baseline] | None = None,
        target: Target = None,
        additional_forward_args: object = None,
        n_steps: PathPoints = 20,
        method: str = "trapezoid",
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
    ) -> WithDelta:
        """Maps of the inputs' shape and dtype; `target` is one class or one per image (None: the predicted one).

        `n_steps` points on the path are weighted by the rule `method` (a name in `integrated_gradients.RULES`).
        `internal_batch_size` of them go through the model at once (None: chosen for speed). `return_convergence_delta=True`
        returns (maps, delta), where delta is the sum of a map − (f_y(x) − f_y(baseline)).
        """
        baseline = baselines[0] if isinstance(baselines, tuple) else baselines
        path = integrated_gradients(
            self.forward_func,
            one_tensor(inputs, additional_forward_args),
            target,
            "black" if baseline is None else baseline,
            n_steps,
            method,
            bounds=self.bounds,
            chunk=internal_batch_size,
        )
        return self._result(path, inputs, return_convergence_delta)


class SmoothGrad(PixelAttribution):
    """The mean gradient under Gaussian noise: 50 samples, σ = 0.15 in pixels.

    >>> import torch
    >>> SmoothGrad(lambda images: images.flatten(1) * 2).attribute(torch.tensor([[[[0.5, 1.0]]]]), target=0).flatten()
    tensor([2.0000, 0.0000])
    """

    def __init__(
        self, model: Model, *, samples: int = 50, sigma: float = 0.15, seed: int = 0, bounds: Bounds = UNIT
    ) -> None:
        super().__init__(model, bounds=bounds)
        self.samples, self.sigma, self.seed = samples, sigma, seed

    @captum_method
    def attribute(
        self,
        inputs: Inputs,
        target: Target = None,
        *,
        internal_batch_size: int | None = None,
        additional_forward_args: object = None,
    ) -> Inputs:
        """Maps of the inputs' shape and dtype; `target` is one class or one per image (None: the predicted one).

        `internal_batch_size` noisy images go through the model at once (None: chosen for speed).
        """
        images = one_tensor(inputs, additional_forward_args)
        options: dict[str, Any] = {"seed": self.seed, "bounds": self.bounds, "chunk": internal_batch_size}
        return as_given(smooth_gradient(self.forward_func, images, target, self.samples, self.sigma, **options), inputs)


class AGI(PixelAttribution):
    """Adversarial Gradient Integration: 20 random rival classes, 15 steps of 0.05 in pixels.

    >>> import torch
    >>> AGI(lambda images: images.flatten(1)).attribute(torch.tensor([[[[0.5, 0.75]]]])).shape
    torch.Size([1, 1, 1, 2])
    """

    def __init__(
        self,
        model: Model,
        *,
        classes: int = 20,
        steps: int = 15,
        step_size: float = 0.05,
        seed: int = 0,
        bounds: Bounds = UNIT,
    ) -> None:
        super().__init__(model, bounds=bounds)
        self.classes, self.steps, self.step_size, self.seed = classes, steps, step_size, seed

    @captum_method
    def attribute(
        self,
        inputs: Inputs,
        target: Target = None,
        *,
        internal_batch_size: int | None = None,
        additional_forward_args: object = None,
    ) -> Inputs:
        """Maps of the inputs' shape and dtype; `target` is one class or one per image (None: the predicted one).

        `internal_batch_size` attacks go through the model at once (None: chosen for speed).
        """
        images = one_tensor(inputs, additional_forward_args)
        options: dict[str, Any] = {"seed": self.seed, "bounds": self.bounds, "chunk": internal_batch_size}
        maps = adversarial_gradient_integration(
            self.forward_func, images, target, self.classes, self.steps, self.step_size, **options
        )
        return as_given(maps, inputs)
