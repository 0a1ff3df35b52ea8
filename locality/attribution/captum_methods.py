"""Captum's own methods by name: `captum:DeepLift`, `captum:LayerGradCam@layer4`."""

from __future__ import annotations

import copy
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import captum.attr  # type: ignore[import-untyped]
import torch
from torch import Tensor, nn

from locality.attribution.captum_convention import Inputs, as_given, one_tensor, refuse_positional, with_captum_names
from locality.attribution.class_gradient import class_gradient
from locality.attribution.token_grid import over_pixels, spatial_layer
from locality.errors import ArgumentError, did_you_mean
from locality.model_calls import Model, model_dtype, open_model
from locality.model_calls.checks import UNIT, Bounds, working_copy
from locality.model_calls.outputs import PlainLogits, logits_of
from locality.model_calls.randomness import image_seeds, own_randomness
from locality.model_calls.targets import Target, class_indices

Arguments = Callable[[Tensor], dict[str, Any]]  # images ↦ keyword arguments of `attribute`


@dataclass(frozen=True)
class Defaults:
    """How a Captum class is called."""

    arguments: Arguments = lambda images: {}
    hooks: bool = False  # needs an nn.Module, and changes it while it runs
    random: bool = False  # runs one image at a time, seeded by its pixels
    fits: bool = False  # fits a linear model with scikit-learn


def patches(images: Tensor) -> Tensor:
    """1×1×H×W indices of an 8×8 grid: the features that perturbation methods remove."""
    rows, columns = (torch.arange(side, device=images.device) * 8 // side for side in images.shape[-2:])
    return (rows[:, None] * 8 + columns).view(1, 1, *images.shape[-2:])


def windows(images: Tensor) -> dict[str, Any]:
    """A window of an eighth of the image over all channels, moved by half its size."""
    channels, height, width = images.shape[1:]
    window = (channels, max(1, height // 8), max(1, width // 8))
    return {
        "sliding_window_shapes": window,
        "strides": (channels, max(1, window[1] // 2), max(1, window[2] // 2)),
        "baselines": 0.0,
        "perturbations_per_eval": 8,
    }


DEFAULTS: dict[str, Defaults] = {
    "Saliency": Defaults(lambda images: {"abs": False}),
    "InputXGradient": Defaults(),
    "IntegratedGradients": Defaults(lambda images: {"n_steps": 20, "internal_batch_size": max(8, len(images))}),
    "DeepLift": Defaults(lambda images: {"baselines": 0.0}, hooks=True),
    "DeepLiftShap": Defaults(lambda images: {"baselines": torch.zeros_like(images[:1]).repeat(2, 1, 1, 1)}, hooks=True),
    "GuidedBackprop": Defaults(hooks=True),
    "Deconvolution": Defaults(hooks=True),
    "GuidedGradCam": Defaults(hooks=True),
    "LRP": Defaults(hooks=True),
    "GradientShap": Defaults(
        lambda images: {"baselines": torch.zeros_like(images[:1]), "n_samples": 20, "stdevs": 0.09}, random=True
    ),
    "Occlusion": Defaults(windows),
    "FeatureAblation": Defaults(
        lambda images: {"feature_mask": patches(images), "baselines": 0.0, "perturbations_per_eval": 8}
    ),
    "KernelShap": Defaults(
        lambda images: {"feature_mask": patches(images), "baselines": 0.0, "n_samples": 200, "perturbations_per_eval": 8},
        random=True,
        fits=True,
    ),
    "ShapleyValueSampling": Defaults(
        lambda images: {"feature_mask": patches(images), "baselines": 0.0, "n_samples": 5, "perturbations_per_eval": 8},
        random=True,
    ),
    "Lime": Defaults(
        lambda images: {"feature_mask": patches(images), "baselines": 0.0, "n_samples": 200, "perturbations_per_eval": 8},
        random=True,
        fits=True,
    ),
}
# In eval mode they return their input unchanged, so that relevance passes through them, as through `torch.flatten`.
PASSED_THROUGH = (nn.Flatten, nn.Unflatten, nn.Identity, nn.modules.dropout._DropoutNd)
LAYERED = ("Layer", "GuidedGradCam", "InternalInfluence")
# They do not explain a class logit of an image, or need another method inside.
UNFIT = (
    "Neuron",
    "LLM",
    "Remote",
    "NoiseTunnel",
    "DataLoader",
    "LimeBase",
    "FeaturePermutation",
    "LayerFeature",
    "LayerAct",
)
# Captum's warnings about its normal operation; they have no class of their own.
KNOWN_WARNINGS = (
    "Setting forward, backward hooks and attributes on non-linear",
    "Setting backward hooks on ReLU activations",
    "Attempting to construct interpretable model with > 10000 features",
    "Minimum element in feature mask is not 0",
)


def captum_names() -> list[str]:
    """The classes of `captum.attr` that explain images."""
    return [
        name
        for name in captum.attr.__all__
        if isinstance(getattr(captum.attr, name), type)
        and issubclass(getattr(captum.attr, name), captum.attr.Attribution)
        and not name.startswith(UNFIT)
        and not name.endswith("Attribution")
    ]


class CaptumMethod:
    """A Captum class with our guarantees: pixels checked, eval mode, predicted class, randomness per image, signed maps.

    Captum hooks modules and leaves attributes on them, so it works on a copy of the model.
    A layer's map is summed over its channels, upsampled to the image and divided equally among the image's channels. Tokens
    of a transformer are placed on their grid first; class and register tokens are left out (`token_grid.py`).

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    >>> CaptumMethod(model, "DeepLift").attribute(torch.rand(2, 3, 2, 2)).shape
    torch.Size([2, 3, 2, 2])
    """

    def __init__(
        self, model: Model, name: str, layer: str | None = None, *, seed: int = 0, bounds: Bounds = UNIT, **arguments: Any
    ) -> None:
        check_name(name, layer)
        self.model, self.name, self.layer = model, name, layer
        self.seed, self.bounds, self.arguments = seed, bounds, arguments
        self.defaults = DEFAULTS.get(name, Defaults())
        if not isinstance(model, nn.Module) and (self.defaults.hooks or layer is not None):
            raise TypeError(f"`model` must be an nn.Module for captum:{name}, got {type(model).__name__}: it hooks modules")
        if layer is not None and isinstance(model, nn.Module):
            submodule(model, layer)
        if self.defaults.fits and importlib.util.find_spec("sklearn") is None:
            raise ImportError(f"captum:{name} needs scikit-learn, which is not installed: pip install scikit-learn")

    @with_captum_names
    def attribute(self, inputs: Inputs, *unnamed: object, target: Target = None, **overrides: Any) -> Inputs:
        """Maps of the images' shape, signed; `overrides` go to Captum's `attribute`. Only inputs are passed by position."""
        refuse_positional(f"captum:{self.name}", unnamed)
        images = one_tensor(inputs, overrides.pop("additional_forward_args", None))
        pixels = working_copy(images, self.bounds)
        with open_model(self.model, pixels, None, self.bounds) as calls:
            chosen = class_gradient(calls, pixels, class_indices(target, pixels), with_gradient=False).target
            size = 1 if self.defaults.random else calls.chunk
            dtype = model_dtype(self.model, pixels)
            explainer = self._explainer(pixels[:1].to(dtype))
            maps = []
            with quiet():
                for start in range(0, len(pixels), size):
                    part = pixels[start : start + size].to(dtype, copy=True).requires_grad_()
                    with own_randomness(image_seeds(pixels[start : start + 1], self.seed)[0], part.device):
                        arguments = self.defaults.arguments(part.detach()) | self.arguments | overrides
                        arguments = {name: in_dtype(value, dtype) for name, value in arguments.items()}
                        maps.append(self._maps(explainer, part, chosen[start : start + size], arguments).to(pixels.dtype))
        return as_given(torch.cat(maps), inputs)

    def _explainer(self, image: Tensor) -> Any:
        model, layer = self.model, None
        if isinstance(model, nn.Module):
            model = copy.deepcopy(model)
            for part in model.modules():
                if getattr(part, "inplace", False) is True:  # would overwrite what Captum's hooks read
                    part.inplace = False  # type: ignore[assignment]
            if self.layer is not None:
                layer = spatial_layer(model, submodule(model, self.layer), self.layer, image)
            model = PlainLogits(model)
        else:
            function = self.model
            model = lambda images: logits_of(function(images), len(images))  # noqa: E731
        kind = getattr(captum.attr, self.name)
        explainer = kind(model) if layer is None else kind(model, layer)
        if isinstance(explainer, captum.attr.LRP):
            let_relevance_pass(explainer)
        return explainer

    def _maps(self, explainer: Any, images: Tensor, target: Tensor, arguments: dict[str, Any]) -> Tensor:
        try:
            maps = explainer.attribute(images, target=target, **arguments)
        except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError) as error:
            raise RuntimeError(f"captum:{self.name} cannot explain this model, Captum says: {error}") from error
        if isinstance(maps, tuple):
            maps = maps[0]
        return self._image_shaped(maps.detach(), images)

    def _image_shaped(self, maps: Tensor, images: Tensor) -> Tensor:
        if maps.shape == images.shape:
            return maps
        if maps.dim() != 4 or len(maps) != len(images):
            raise ValueError(
                f"`{self.name}@{self.layer}` must return N×channels×height×width maps, got shape {tuple(maps.shape)}: name "
                "a layer with spatial output or with tokens"
            )
        return over_pixels(maps.sum(1, keepdim=True), images)


def let_relevance_pass(explainer: Any) -> None:
    """Make LRP ignore the layers that return their input unchanged.

    LRP rejects layers without a rule, and a rule would be wrong: Identity returns its input tensor itself, so Captum's hooks
    for input and output are on one tensor, and behind a ReLU the map is wrong.
    """
    get_layers = explainer._get_layers

    def get_other_layers(model: nn.Module) -> None:
        get_layers(model)
        explainer.layers = [
            layer for layer in explainer.layers if hasattr(layer, "rule") or not isinstance(layer, PASSED_THROUGH)
        ]

    explainer._get_layers = get_other_layers


def in_dtype(value: Any, dtype: torch.dtype) -> Any:
    """An argument for Captum in the model's dtype, if it is a floating-point tensor."""
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def check_name(name: str, layer: str | None) -> None:
    """Raise unless Captum has the class and it gets a layer exactly where it needs one."""
    known = captum_names()
    if name not in known:
        hint = did_you_mean(name, known) or f"there are {', '.join(known)}"
        raise ArgumentError("method", "captum:NAME of a Captum class that explains images", f"captum:{name}", hint)
    if name.startswith(LAYERED) and not layer:
        raise ArgumentError("method", f"a name with a layer, such as captum:{name}@layer4", f"captum:{name}")
    if not name.startswith(LAYERED) and layer is not None:
        raise ArgumentError("method", f"captum:{name} without a layer", f"captum:{name}@{layer}", f"{name} explains pixels")


def submodule(model: nn.Module, name: str) -> nn.Module:
    """The module of the model with this name, or with `net.` before it: a loaded network is the `net` of a PixelModel."""
    parts: dict[str, nn.Module] = dict(model.named_modules())
    if name not in parts and f"net.{name}" in parts:
        return parts[f"net.{name}"]
    if name not in parts or not name:
        hint = did_you_mean(name, parts, 0.3) or f"there are {', '.join(list(parts)[1:4])}, …"
        raise ArgumentError("layer", "the name of a module of the model", name, hint)
    return parts[name]


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the warnings about Captum's normal operation."""
    with warnings.catch_warnings():
        for text in KNOWN_WARNINGS:
            warnings.filterwarnings("ignore", message=text)
        yield
